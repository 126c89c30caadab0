import time
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinner.model.cpuset import MAX_CPUS, CpuSet, union
from pinner.model.errors import Invalid

ids = st.frozensets(st.integers(0, MAX_CPUS - 1), max_size=40) | st.frozensets(st.integers(0, 9))
sets = st.builds(CpuSet.of, ids)


@pytest.mark.parametrize(
    ("text", "ids", "printed"),
    [
        ("", [], ""),
        (" ", [], ""),
        ("5", [5], "5"),
        ("0-3,8", [0, 1, 2, 3, 8], "0-3,8"),
        ("8, 0-1 ,1-2", [0, 1, 2, 8], "0-2,8"),
        ("0-31:2/8", [0, 1, 8, 9, 16, 17, 24, 25], "0-1,8-9,16-17,24-25"),
        ("0-7,^3", [0, 1, 2, 4, 5, 6, 7], "0-2,4-7"),
        ("^0-2,0-3", [3], "3"),
        ("8191", [8191], "8191"),
    ],
)
def test_the_grammar_of_the_kernel_and_of_nova(text, ids, printed):
    cpus = CpuSet.parse(text)
    assert list(cpus) == ids
    assert str(cpus) == printed


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("0-", "'0-' is neither a number nor a range"),
        ("0,,1", "'' is neither"),
        ("-1", "'-1' is neither"),
        ("0x3", "'0x3' is neither"),
        ("\u0663", "'\u0663' is neither"),
        ("3-1", "the range 3-1 runs backwards"),
        ("8192", "no CPU has a number of 8192 or more"),
        ("0-7:3/2", "must use between 1 and 2 of each group"),
        ("0-7:0/2", "must use between 1 and 2 of each group"),
    ],
)
def test_an_invalid_list_is_refused_and_the_invalid_part_is_named(text, why):
    with pytest.raises(Invalid) as refused:
        CpuSet.parse(text, "housekeeping")
    assert why in refused.value.message
    assert refused.value.details["field"] == "housekeeping"


@given(sets)
def test_a_list_is_read_back_as_it_was_written(cpus):
    assert CpuSet.parse(str(cpus)) == cpus


@given(sets, sets)
def test_cpu_sets_combine_like_sets(a, b):
    assert union((a, b)) == (a | b) == CpuSet.of([*a, *b])
    assert (a & b) | (a - b) == a
    assert (a <= b) == (a - b == CpuSet())
    assert (a < b) == (a <= b and a != b)


@given(ids, ids)
def test_a_cpu_set_behaves_as_a_frozenset(one, other):
    a, b = CpuSet.of(one), CpuSet.of(other)
    assert (a | b, a & b, a - b) == (CpuSet.of(one | other), CpuSet.of(one & other), CpuSet.of(one - other))
    assert (a <= b, a < b, a == b, a.isdisjoint(b)) == (one <= other, one < other, one == other, one.isdisjoint(other))
    assert (list(a), a.ids, len(a), bool(a), a.lowest) == (sorted(one), one, len(one), bool(one), min(one, default=-1))
    assert all((cpu in a) == (cpu in one) for cpu in one | other)
    assert a != one
    assert len({a, CpuSet.of(sorted(one))}) == 1


@given(sets)
def test_equal_lists_are_one_object(cpus):
    assert CpuSet.parse(str(cpus)) is CpuSet.parse(str(cpus))


def test_a_cpu_set_does_not_change():
    with pytest.raises(FrozenInstanceError):
        CpuSet.of([1]).bits = 2


@pytest.mark.parametrize("number", [-1, MAX_CPUS, 10**12])
def test_a_number_that_no_cpu_can_have_is_refused_early(number):
    with pytest.raises(Invalid) as refused:
        CpuSet.of([0, number])
    assert refused.value.message == f"cpus: {number} is not valid: CPU numbers from 0 to 8191"


def test_a_cpu_set_shows_its_list_to_a_developer():
    assert repr(CpuSet.of([0, 1, 8])) == "CpuSet('0-1,8')"


@given(sets)
def test_a_mask_is_read_back_as_it_was_written(cpus):
    bits = int(cpus.mask().replace(",", ""), 16)
    assert [cpu for cpu in range(MAX_CPUS) if bits >> cpu & 1] == list(cpus)
    assert all(len(word) == len("ffffffff") for word in cpus.mask().split(","))


@pytest.mark.parametrize(
    ("cpus", "mask"),
    [
        ("", "00000000"),
        ("0", "00000001"),
        ("0-3,31", "8000000f"),
        ("0-39", "000000ff,ffffffff"),
        ("0-3,39", "00000080,0000000f"),
        ("32", "00000001,00000000"),
        ("1,100", "00000010,00000000,00000000,00000002"),
    ],
)
def test_the_kernels_mask_has_words_of_32_cpus(cpus, mask):
    assert CpuSet.parse(cpus).mask() == mask


@pytest.mark.fault(45)
@pytest.mark.parametrize("text", ["0-8191," * 5_000 + "1", "0-8191:1/2," * 3_000 + "1", "1," * 30_000 + "1"])
def test_a_costly_list_is_refused_early(text):
    began = time.process_time()
    with pytest.raises(Invalid) as refused:
        CpuSet.parse(text, "housekeeping")
    assert time.process_time() - began < 0.1
    assert len(str(refused.value)) < 1000


def test_the_longest_list_of_a_kernel_is_read():
    every_second = ",".join(str(cpu) for cpu in range(0, MAX_CPUS, 2))
    assert len(CpuSet.parse(every_second)) == MAX_CPUS // 2
    every = ",".join(str(cpu) for cpu in range(MAX_CPUS))
    assert CpuSet.parse(f"0-{MAX_CPUS - 1},^0-{MAX_CPUS - 1}") == CpuSet()
    assert len(CpuSet.parse(every)) == MAX_CPUS
