"""An integer program, and its solution term by term: the first term at its least value, then the next one. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pinner.planning.packing.values import Score


@dataclass(frozen=True)
class ProgramRow:
    """A sum of columns with factors, which lies between two numbers."""

    entries: tuple[tuple[int, float], ...]
    """Positions of columns, each with its factor."""
    lower: float
    upper: float


@dataclass(frozen=True)
class Program:
    """An integer program; each column is 0 or more."""

    rows: tuple[ProgramRow, ...]
    costs: tuple[tuple[float, ...], ...]
    """The terms of the score, in its order, each as a factor for every column. The program may lack the last ones."""
    fixed: Score
    """What the costs add to: the score of a solution without any column."""


@dataclass(frozen=True, slots=True)
class Solution:
    """The result for one term of the score."""

    values: tuple[int, ...]
    """The number of each column; empty where no solution was found within the budget."""
    value: int
    """The term's value."""
    bound: int
    """No solution has a lower value."""


Minimise = Callable[[Program, int, Sequence[ProgramRow], int], Solution]
"""The solution with the lowest value of one term of a program's score, within further rows and a budget."""


@dataclass(frozen=True, slots=True)
class Work:
    """The solver, and its budget for each term."""

    solve: Minimise
    budget: int


@dataclass(frozen=True, slots=True)
class Solved:
    """The solution of a program, and a score that none can be below."""

    values: tuple[int, ...]
    """The number of each column; empty where no solution was found."""
    bound: Score


def solved(program: Program, known: Score, bound: Score, work: Work) -> Solved:
    """The solution with the lowest score. There is one with the score ``known``, and none below ``bound``."""
    least: list[int] = []
    limits: list[ProgramRow] = []
    values: tuple[int, ...] = ()
    for term, (factors, constant) in enumerate(zip(program.costs, program.fixed, strict=False)):
        proven = known[: term + 1] == bound[: term + 1] and least == list(known[:term])
        if proven and not values:
            value = known[term]
        else:
            found = work.solve(program, term, limits, work.budget)
            values = found.values or values
            if not found.values or found.bound < found.value:
                rest = [found.bound + constant, 0, 0, 0][: len(program.fixed) - term]
                return Solved(values, max(bound, Score(*least, *rest)))
            value = found.value + constant
        least.append(value)
        entries = tuple((column, factor) for column, factor in enumerate(factors) if factor)
        limits.append(ProgramRow(entries, float("-inf"), value - constant))
    return Solved(values, Score(*least, *program.fixed[len(least) :]))
