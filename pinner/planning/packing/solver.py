"""Solves an integer program with HiGHS, if it is installed (the extra ``pinner[optimal]``).

The budget is work, not time: a number of nodes of the search tree, on one thread, with a fixed seed. So the same
program has the same answer on every machine with the same version of HiGHS.
"""

from collections.abc import Sequence
from importlib.util import find_spec

from pinner.planning.packing.program import Minimise, Program, ProgramRow, Solution

MISSING = "it was not tried: the solver is not installed: pip install 'pinner[optimal]'"
_ROUNDING = 1e-6
_OPTIONS = (("output_flag", False), ("threads", 1), ("random_seed", 0), ("mip_rel_gap", 0.0), ("mip_abs_gap", 1 - 1e-4))
"""Every value is a whole number: a gap below 1 proves the value."""


def installed() -> Minimise | None:
    """HiGHS, if it is installed."""
    return _minimised if find_spec("highspy") and find_spec("numpy") else None


def _minimised(program: Program, term: int, limits: Sequence[ProgramRow], nodes: int) -> Solution:
    """The solution with the lowest value of one term of the score, within further rows.

    ``nodes`` is the budget.
    """
    import highspy
    import numpy as np

    rows = [*program.rows, *limits]
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(program.costs[term]), len(rows)
    lp.col_cost_ = np.array(program.costs[term], dtype=np.double)
    lp.col_lower_ = np.zeros(lp.num_col_)
    lp.col_upper_ = np.full(lp.num_col_, highspy.kHighsInf)
    lp.row_lower_ = np.array([row.lower for row in rows], dtype=np.double)
    lp.row_upper_ = np.array([row.upper for row in rows], dtype=np.double)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.cumsum([0, *(len(row.entries) for row in rows)])
    lp.a_matrix_.index_ = np.array([column for row in rows for column, _ in row.entries])
    lp.a_matrix_.value_ = np.array([factor for row in rows for _, factor in row.entries], dtype=np.double)
    lp.integrality_ = [highspy.HighsVarType.kInteger] * lp.num_col_
    # The class that users are meant to take writes a line to standard output when it is made; its base does not.
    solver = highspy._Highs()  # type: ignore[attr-defined]
    for name, value in (*_OPTIONS, ("mip_max_nodes", nodes)):
        solver.setOptionValue(name, value)
    solver.passModel(lp)
    solver.run()
    info = solver.getInfo()
    found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    least = info.mip_dual_bound
    bound = -(-int((least - _ROUNDING) * 1000) // 1000) if abs(least) < 1e9 else 0
    if not found:
        return Solution((), 0, bound)
    values = tuple(round(value) for value in solver.getSolution().col_value)
    return Solution(values, round(info.objective_function_value), bound)
