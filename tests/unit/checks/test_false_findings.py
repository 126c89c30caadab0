"""Hosts that look faulty, and are not."""

from dataclasses import replace

import pytest
from support.check_cases_hosts import pair
from support.hosts import cpus
from support.readings import codes


@pytest.mark.parametrize(("first", "second", "code"), [("1", "9", "smt-shared-core"), ("3", "3", "vcpus-overlap")])
def test_a_pool_of_one_cpu_is_no_cpu_of_its_own(first, second, code):
    found = pair(first, second)
    guests = [replace(guest, pooled=cpus(first)) for guest in found.snapshot.guests[:1]]
    shared = replace(found, snapshot=replace(found.snapshot, guests=(*guests, found.snapshot.guests[1])))
    assert code in codes(found)
    assert code not in codes(shared)
