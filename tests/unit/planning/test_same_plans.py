"""The plans of 560 generated hosts are the same as before, byte for byte: with every strategy, the first and the
second one, from a placement, as a rebalance, as a re-pack.

data/plan_hashes.txt has a hash for each host. A change of a plan that is meant replaces the lines that this test
prints, with the reason in its commit.
"""

from pathlib import Path

import pytest
from support.made_up.generated_hosts import generated
from support.made_up.plan_hashes import hash_of

HASHES = dict(line.split() for line in (Path(__file__).parent / "data/plan_hashes.txt").read_text().splitlines())
FAST = 14
"""One host of so many is in the fast set."""
HOSTS = [
    pytest.param(name, marks=[pytest.mark.slow("the plans of 560 hosts")] if number % FAST else [])
    for number, name in enumerate(HASHES)
]


@pytest.mark.parametrize("name", HOSTS)
def test_the_plans_of_a_generated_host_are_the_same_as_before(name):
    assert (name, hash_of(generated(int(name[:-1]), friendly=name.endswith("f")))) == (name, HASHES[name])


def test_every_generated_host_has_a_hash():
    assert len(HASHES) == 560
