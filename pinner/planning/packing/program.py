"""An integer program, and its solution term by term by HiGHS, if that is installed (the extra ``pinner[optimal]``).

The budget is work, not time: nodes of the search tree, on one thread, with a fixed seed. So every machine with the same
version of HiGHS has the same answer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from pinner.planning.packing.values import Score


@dataclass(frozen=True)
class ProgramRow:
    entries: tuple[tuple[int, float], ...]
    """Columns' positions, each with its factor."""
    lower: float
    upper: float


@dataclass(frozen=True)
class Program:
    """Each column is 0 or more."""

    rows: tuple[ProgramRow, ...]
    costs: tuple[tuple[float, ...], ...]
    """The score's terms in order, each a factor for every column; the last ones may be missing."""
    fixed: Score


@dataclass(frozen=True, slots=True)
class Solution:
    values: tuple[int, ...]
    """Empty: none was found."""
    value: int
    bound: int


Minimise = Callable[[Program, int, Sequence[ProgramRow], int], Solution]
"""For one term, within further rows and a budget."""


_SMALL, _MOST = 1000, 150
"""Cells (columns times rows) of a small program, and the most for each node of the budget."""


@dataclass(frozen=True, slots=True)
class Work:
    solve: Minimise
    budget: int
    """Nodes of the search tree, for a term of a small program."""

    def affords(self, program: Program) -> bool:
        """All terms of it. The first node alone takes seconds of a larger one."""
        return _cells(program) <= self.budget * _MOST

    def nodes(self, program: Program) -> int:
        """A large program gets fewer, because each takes longer."""
        return -(-self.budget * _SMALL // max(_SMALL, _cells(program)))


def _cells(program: Program) -> int:
    return len(program.rows) * len(program.costs[0])


@dataclass(frozen=True, slots=True)
class Solved:
    """No solution is below ``bound``."""

    values: tuple[int, ...]
    bound: Score


def solved(program: Program, known: Score, bound: Score, work: Work) -> Solved:
    """There is one with the score ``known``, and none below ``bound``."""
    least: list[int] = []
    limits: list[ProgramRow] = []
    values: tuple[int, ...] = ()
    for term, (factors, constant) in enumerate(zip(program.costs, program.fixed, strict=False)):
        proven = known[: term + 1] == bound[: term + 1] and least == list(known[:term])
        if proven and not values:
            value = known[term]
        else:
            solution = work.solve(program, term, limits, work.nodes(program))
            values = solution.values or values
            if not solution.values or solution.bound < solution.value:
                rest = [solution.bound + constant, 0, 0, 0][: len(program.fixed) - term]
                return Solved(values, max(bound, Score(*least, *rest)))
            value = solution.value + constant
        least.append(value)
        entries = tuple((column, factor) for column, factor in enumerate(factors) if factor)
        limits.append(ProgramRow(entries, float("-inf"), value - constant))
    return Solved(values, Score(*least, *program.fixed[len(least) :]))


MISSING = "it was not tried: the solver is not installed: pip install 'pinner[optimal]'"
_ROUNDING = 1e-6
_OPTIONS = (("output_flag", False), ("threads", 1), ("random_seed", 0), ("mip_rel_gap", 0.0), ("mip_abs_gap", 1 - 1e-4))
"""Every value is whole: a gap below 1 proves it."""


def installed() -> Minimise | None:
    return _minimised if find_spec("highspy") and find_spec("numpy") else None


def _minimised(program: Program, term: int, limits: Sequence[ProgramRow], nodes: int) -> Solution:
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
    is_feasible = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    least = info.mip_dual_bound
    bound = -(-int((least - _ROUNDING) * 1000) // 1000) if abs(least) < 1e9 else 0
    if not is_feasible:
        return Solution((), 0, bound)
    values = tuple(round(value) for value in solver.getSolution().col_value)
    return Solution(values, round(info.objective_function_value), bound)
