"""pinner what-if, capacity and plan --explain from a snapshot file, and their wrong options."""

import json

import pytest
from support.hosts import GIB, guest, plain, snapshot

from pinner import codec
from pinner.model.questions import Capacity, Explanation, WhatIf

pytestmark = pytest.mark.usefixtures("without_service")


@pytest.fixture
def saved(tmp_path):
    """A file with the snapshot of a host with pools of 12 CPUs on two nodes, and two guests."""
    file, top = tmp_path / "host.json", plain(32, 2)
    guests = [guest(1, 8, top.online), guest(2, 6, top.online, memory={1: 24 * GIB}, memory_kib=24 * GIB)]
    file.write_bytes(codec.dump(snapshot(top, guests)))
    return file


def test_what_if_prints_both_plans_and_who_has_no_place(cli, saved):
    result = cli("what-if", "--snapshot", saved, "--strategy", "numa-local", "--add", "2x4:60G", "--remove", "g1")
    assert result.status == 0
    assert "guests placed 2 2 guests unplaced 0 1" in " ".join(result.out.split())
    assert "UNPLACED AFTER" in result.out
    assert "new2" in result.out


def test_what_if_as_json(cli, saved):
    result = cli("what-if", "--snapshot", saved, "--then-strategy", "numa-local", "--without-cpus", "30-31", "--json")
    found = codec.load(WhatIf, result.out)
    assert (found.before.strategy, found.after.strategy) == ("shared-pool", "numa-local")


def test_capacity_prints_the_exact_numbers(cli, saved):
    result = cli(
        "capacity", "--snapshot", saved, "--strategy", "numa-local", "--vcpus", "4", "--memory", "20G", "--json"
    )
    found = codec.load(Capacity, result.out)
    fitting = {each.strategy: each.guests for each in found.fitting}
    assert [fitting[name] for name in ("isolated", "numa-local", "shared-pool")] == [0, 2, 2]
    assert "20.0 GiB" in cli("capacity", "--snapshot", saved, "--vcpus", "4", "--memory", "20G").out


def test_explain_prints_the_alternatives(cli, saved):
    result = cli("plan", "--snapshot", saved, "--strategy", "numa-local", "--explain", "g2")
    assert "node 1 has 100% of the guest's memory" in result.out
    assert "remote_memory +26624.00; 1 other guests move" in result.out
    found = codec.load(Explanation, cli("plan", "--snapshot", saved, "--explain", "g2", "--json").out)
    assert found.guest.name == "g2"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("what-if --add 0", "'0' is not [COUNTx]VCPUS[:MEMORY]"),
        ("what-if --add 2y4", "is not [COUNTx]VCPUS[:MEMORY]"),
        ("what-if --add 4:16", "'16' is not a size such as 512M or 16G"),
        ("what-if --add 2000x1", "a number of guests from 1 to 1024"),
        ("what-if --add x8", "'x8' is not [COUNTx]VCPUS[:MEMORY], such as 3x8:16G"),
        ("what-if --add 3x8:", "'' is not a size such as 512M or 16G"),
        ("what-if --add 9999x1", "a number of guests from 1 to 1024"),
        ("what-if --then-strategy=", "strategy: there is no ''"),
        ("capacity --vcpus 1 --huge-pages 1G", "--huge-pages: '1.0 GiB' is not valid: an option beside --memory"),
        ("what-if --without-node one", "'one' is not the number of a NUMA node"),
        ("what-if --without-cpus 99", "CPUs that are online; 99 are not"),
        ("what-if --without-node 7", "node: there is no '7'"),
        ("what-if --remove g9", "guest: there is no 'g9'"),
        ("what-if --then-strategy fast", "strategy: there is no 'fast'"),
        ("what-if --then-weight extra_l3=-1", "TERM=NUMBER with a number from 0"),
        ("what-if --then-weight speed=1", "the name of a term"),
        ("capacity --vcpus 0", "'0' is not a number of vCPUs"),
        ("capacity --vcpus 1 --memory 2000T", "is not a size such as"),
        ("capacity", "--vcpus"),
        ("plan --explain g9", "guest: there is no 'g9'"),
    ],
)
def test_wrong_options_name_the_value_and_what_is_right(cli, saved, words, error):
    result = cli(*words.split(), "--snapshot", saved)
    assert result.status != 0
    assert error in result.err


def test_capacity_of_a_host_follows_its_policy(cli):
    result = cli("capacity", "--vcpus", "1", "--smt", "isolate", "--json")
    assert "a host is planned by its policy" in json.loads(result.out or result.err)["error"]["message"]
