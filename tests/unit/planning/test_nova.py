"""Plans on a host with Nova: its CPU sets, the guests that it pinned, and flavors with settings for pinner."""

import re
from dataclasses import replace

import pytest
from data.field import starlingx
from support.hosts import applied, cpus, guest, plain, process, snapshot, topology

from pinner.model.cpuset import union
from pinner.model.guest.guest import NovaIdentity
from pinner.model.guest.nova import NovaConf
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning import planner
from pinner.planning.placement import record
from pinner.planning.planner import plan

STRATEGIES = ("shared-pool", "numa-local", "isolated")
TWO = plain(32, nodes=2)


def placed(made: Plan, name: str, kind: str = "vcpu") -> list[str]:
    return [str(want.cpus) for want in made.wanted if (want.target.name, want.target.kind) == (name, kind)]


def flavored(number: int, vcpus: int, **specs: str):
    extra_specs = {f"pinner:{name}": text for name, text in specs.items()}
    return guest(number, vcpus, TWO.online, nova=NovaIdentity("i", "p", "u", "f", extra_specs))


# Nova's CPU sets


@pytest.mark.parametrize("strategy", ["shared-pool", "numa-local"])
def test_pools_lie_inside_the_shared_set(strategy: str) -> None:
    host = snapshot(TWO, [guest(1, 2, TWO.online), guest(2, 2, TWO.online)], shared=cpus("4-12,20-28"))
    made = plan(host, "s", Request(strategy))
    assert str(made.roles.vcpu) == "4-12,20-28"
    assert (str(made.roles.housekeeping), str(made.roles.emulator)) == ("0-1,16-17", "2-3,18-19")
    assert set(placed(made, "g1")) <= {"4-12,20-28", "4-12", "20-28"}


@pytest.mark.parametrize(
    ("load", "sets"),
    [(40.0, ("30-31", "0-3", "4-29")), (300.0, ("0-5,30-31", "6-9", "10-29"))],
)
def test_housekeeping_uses_the_shared_set_only_where_its_load_needs_that(load: float, sets: tuple[str, ...]) -> None:
    guests, busy = [guest(1, 2, cpus("0-31"))], process(300, load, *["0-31"] * 4)
    made = plan(snapshot(plain(32), guests, [busy], shared=cpus("0-29")), "s", Request())
    assert (str(made.roles.housekeeping), str(made.roles.emulator), str(made.roles.vcpu)) == sets


@pytest.mark.parametrize("strategy", ["shared-pool", "numa-local"])
def test_the_host_stays_out_of_a_node_that_has_the_shared_set_alone(strategy: str) -> None:
    made = plan(starlingx.HOST, "s", Request(strategy))
    sets = made.roles.housekeeping, made.roles.emulator, made.roles.vcpu
    assert sets == (starlingx.HOUSEKEEPING, starlingx.EMULATOR, starlingx.VCPU)
    assert made.unplaced == ()


@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize(("qemu", "sets"), [(0.0, ("0-2,4-7", "3,8")), (900.0, ("0-1,4-7", "2-3,8-9"))])
def test_housekeeping_beyond_a_step_has_every_cpu_outside_the_shared_set(
    qemu: float, sets: tuple[str, str], by_hand: bool
) -> None:
    """No vCPU may ever use CPUs 0-7. The daemon needs 9 CPUs."""
    own = process(11_000, qemu, "0-15", name="qemu", reasons=["guest"], immovable_reason="guest")
    busy = [process(300, 900.0, *["0-15"] * 9), own]
    host = snapshot(plain(16, 2), [guest(1, 2, cpus("0-15"))], busy, shared=cpus("8-15"))
    made = plan(host, "s", Request())
    assert (str(made.roles.housekeeping), str(made.roles.emulator)) == sets
    again = plan(applied(host, made, by_hand=by_hand), "s", Request())
    assert (again.roles, again.changes) == (made.roles, ())


def test_a_node_outside_the_shared_set_has_no_cpu_for_vcpus() -> None:
    made = plan(snapshot(TWO, [guest(1, 2, TWO.online)], shared=cpus("16-31")), "s", Request("numa-local"))
    assert placed(made, "g1") == [str(made.roles.vcpu)] * 2
    assert made.roles.vcpu < cpus("16-31")
    assert made.roles.housekeeping & cpus("0-15")


def test_isolated_cpus_outside_the_shared_set_are_not_used() -> None:
    top = plain(16, isolated="8-15")
    made = plan(snapshot(top, [guest(1, 2, cpus("0-7"))], shared=cpus("4-9")), "s", Request("isolated"))
    assert (placed(made, "g1"), str(made.roles.vcpu)) == (["8", "9"], "8-9")


def test_a_recorded_pool_shrinks_with_the_shared_set() -> None:
    host = snapshot(TWO, [guest(1, 2, TWO.online)])
    made = plan(host, "s", Request())
    now = replace(applied(host, made), shared=cpus("4-11"))
    again = planner.plan_from_placement(now, "s", Request(), record(made, host, None))
    assert made.roles.vcpu > again.roles.vcpu == cpus("4-11")
    assert again.roles.housekeeping == made.roles.housekeeping


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_cpus_that_nova_powered_down_are_not_used(strategy: str) -> None:
    """[libvirt] cpu_power_management takes dedicated CPUs that no guest has offline."""
    top = plain(16, offline="12-15")
    host = snapshot(top, [guest(1, 2, top.online)], [process(300, 50.0, "0-11")], dedicated=cpus("8-15"))
    made = plan(host, "s", Request(strategy))
    assert made.wanted
    assert union(want.cpus for want in made.wanted) <= cpus("0-7")


@pytest.mark.parametrize(
    ("conf", "why"),
    [
        (NovaConf((), dedicated="4-x"), "cpu_dedicated_set: '4-x' is not valid"),
        (NovaConf(("/etc/nova/nova.conf",), error="Permission denied"), "/etc/nova/nova.conf.*Permission denied"),
    ],
)
def test_a_plan_is_blocked_where_pinner_cannot_tell_novas_cpus(conf: NovaConf, why: str) -> None:
    host = snapshot(TWO, [guest(1, 2, TWO.online)], nova=conf)
    blocked = plan(host, "s", Request()).blocked
    assert blocked.startswith("pinner cannot determine which CPUs Nova owns")
    assert re.search(why, blocked)
    configured = replace(host, dedicated=cpus("8"), shared=cpus("0-7"))
    assert plan(configured, "s", Request()).blocked == ""


def test_a_plan_for_novas_guests_is_blocked_where_pinner_finds_no_configuration_of_nova() -> None:
    missing = NovaConf((), is_missing=True)
    host = snapshot(TWO, [flavored(1, 2)], nova=missing)
    blocked = plan(host, "s", Request()).blocked
    assert "Nova manages 1 guests here (g1 is one)" in blocked
    assert "ignore_nova_conf = true" in blocked
    assert plan(replace(host, dedicated=cpus("8"), shared=cpus("0-7")), "s", Request()).blocked == ""
    assert plan(replace(host, nova=None), "s", Request()).blocked == ""
    assert plan(snapshot(TWO, [guest(1, 2, TWO.online)], nova=missing), "s", Request()).blocked == ""


@pytest.mark.parametrize(
    ("conf", "why"),
    [
        (NovaConf((), "4-7", "0-4"), "CPUs 4 are also in cpu_dedicated_set"),
        (NovaConf((), "4-7", "0-3", reserved_cpus=1), "reserved_host_cpus: '1'"),
        (NovaConf((), "4-7", pin_set="0-3"), "vcpu_pin_set: '0-3'"),
    ],
)
def test_a_plan_is_blocked_where_nova_does_not_start(conf: NovaConf, why: str) -> None:
    assert why in plan(snapshot(TWO, [flavored(1, 2)], nova=conf), "s", Request()).blocked


# Guests that Nova pinned


@pytest.mark.fault(15)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("emulators", [False, True])
@pytest.mark.parametrize(
    ("pins", "policy", "theirs"),
    [
        (["8", "9"], "", "8-9"),
        (["8", "0-15"], "", "8"),
        (["8", "9"], "isolate", "8-10"),
        (["8", "9"], "share", "8-9"),
    ],
    ids=["dedicated", "mixed", "isolate", "share"],
)
def test_a_pinned_guest_stays_and_its_cpus_are_in_no_pool(
    strategy: str, emulators: bool, pins: list[str], policy: str, theirs: str
) -> None:
    pinned = guest(1, 2, TWO.online, pins=pins, dedicated=True, policy=policy, iothreads=1, vhost_threads=1)
    if policy == "isolate":
        pinned = replace(pinned, emulator=replace(pinned.emulator, pin=cpus("10")))
    top = plain(32, nodes=2, isolated="24-31") if strategy == "isolated" else TWO
    host = snapshot(top, [pinned, guest(2, 2, TWO.online)], [process(300, 50.0, "0-31")])
    made = plan(host, "s", Request(strategy, nova_emulators=emulators))
    assert placed(made, "g1") == []
    assert not union((made.roles.housekeeping, made.roles.emulator, made.roles.vcpu)) & cpus(theirs)
    moved = {kind for kind in ("emulator", "iothread", "vhost") if placed(made, "g1", kind)}
    assert moved == ({"emulator", "iothread", "vhost"} if emulators and not policy else set())
    (why,) = [left.why for left in made.skipped if left.label == "guest g1"]
    assert why.startswith(f"Nova dedicates CPUs {theirs} to it")
    assert ("hw:emulator_threads_policy" in why) == (emulators and bool(policy))
    assert ("only its emulator threads are placed" in why) == (emulators and not policy)
    assert placed(made, "g2")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_emulator_threads_of_a_pinned_guest_go_near_its_vcpus_and_stay_there(strategy: str) -> None:
    top = plain(32, nodes=2, isolated="28-31") if strategy == "isolated" else TWO
    host = snapshot(top, [guest(1, 2, TWO.online, pins=["24", "25"], dedicated=True)])
    request = Request(strategy, nova_emulators=True)
    made = plan(host, "s", request)
    assert placed(made, "g1", "emulator") == [str(made.roles.emulator & cpus("16-31"))]
    assert [str(change.target) for change in made.changes] == ["guest g1 emulator"]
    after = applied(host, made)
    assert plan(after, "s", request).changes == ()
    assert planner.plan_from_placement(after, "s", request, record(made, host, None)).changes == ()


# Flavors with settings for pinner


@pytest.mark.parametrize("word", ["true", "True", "yes", "1", "on"])
def test_a_guest_with_an_excluding_flavor_is_skipped(word: str) -> None:
    host = snapshot(TWO, [flavored(1, 2, excluded=word), guest(2, 2, TWO.online)])
    made = plan(host, "s", Request())
    assert (placed(made, "g1"), len(placed(made, "g2"))) == ([], 2)
    assert [(left.label, left.why) for left in made.skipped] == [
        ("guest g1", "its flavor excludes it (pinner:excluded)")
    ]


@pytest.mark.parametrize("word", ["false", "no", "0"])
def test_a_guest_with_a_flavor_that_does_not_exclude_it_is_placed(word: str) -> None:
    made = plan(snapshot(TWO, [flavored(1, 2, excluded=word)]), "s", Request())
    assert len(placed(made, "g1")) == 2
    assert not any("flavor" in warning for warning in made.warnings)


def stable_plan(host: Snapshot, strategy: str) -> Plan:
    """The plan. A second plan after it, and a plan of a policy, have no changes."""
    made = plan(host, "s", Request(strategy))
    after = applied(host, made)
    assert plan(after, "s", Request(strategy)).changes == ()
    assert planner.plan_from_placement(after, "s", Request(strategy), record(made, host, None)).changes == ()
    return made


def test_a_guest_with_the_flavor_numa_local_gets_one_node_beside_the_pool() -> None:
    made = stable_plan(snapshot(TWO, [flavored(1, 2, strategy="numa-local"), guest(2, 2, TWO.online)]), "shared-pool")
    assert placed(made, "g2") == ["4-15,20-31"] * 2
    assert placed(made, "g1") in (["4-15"] * 2, ["20-31"] * 2)
    assert str(made.roles.vcpu) == "4-15,20-31"


def test_a_guest_with_the_flavor_shared_pool_floats_beside_guests_on_one_node() -> None:
    made = stable_plan(snapshot(TWO, [flavored(1, 2, strategy="shared-pool"), guest(2, 2, TWO.online)]), "numa-local")
    assert placed(made, "g1") == ["4-15,20-31"] * 2
    assert placed(made, "g2") in (["4-15"] * 2, ["20-31"] * 2)


def test_a_guest_with_the_flavor_isolated_gets_isolated_cpus_beside_the_pool() -> None:
    top = plain(32, nodes=2, isolated="12-15,28-31")
    host = snapshot(top, [flavored(1, 2, strategy="isolated"), guest(2, 2, TWO.online)])
    made = stable_plan(host, "shared-pool")
    assert placed(made, "g1") == ["12", "13"]
    assert set(placed(made, "g2")) == {"4-11,20-27"}
    assert placed(made, "g1", "emulator") == [str(made.roles.emulator & cpus("0-15"))]
    assert not any("stay unused" in warning for warning in made.warnings)


@pytest.mark.parametrize(
    ("host", "flavors"), [("optimal", "isolated"), ("isolated", "optimal"), ("shared-pool", "optimal")]
)
def test_guests_of_two_strategies_share_the_isolated_cpus_without_overlap(host: str, flavors: str) -> None:
    top = plain(32, nodes=2, isolated="12-15,28-31")
    guests = [flavored(1, 2, strategy=flavors), flavored(2, 2, strategy="isolated"), guest(3, 2, TWO.online)]
    made = stable_plan(snapshot(top, guests), host)
    own = [placed(made, name) for name in (("g1", "g2") if host == "shared-pool" else ("g1", "g2", "g3"))]
    assert {cpu for each in own for cpu in each} <= {"12", "13", "14", "15", "28", "29", "30", "31"}
    assert len({cpu for each in own for cpu in each}) == 2 * len(own)
    later = applied(snapshot(top, guests), made)
    newcomer = replace(later, guests=(*later.guests, guest(4, 2, TWO.online)))
    assert not {change.target.name for change in plan(newcomer, "s", Request(host)).changes} & {"g1", "g2"}


def test_a_guest_gets_the_isolated_cpu_that_another_one_leaves_in_the_same_plan() -> None:
    leaving = guest(
        1, 1, TWO.online, pins=["6"], nova=NovaIdentity("i", "p", "u", "f", {"pinner:strategy": "numa-local"})
    )
    made = stable_plan(
        snapshot(plain(8, isolated="6-7"), [leaving, flavored(2, 2, strategy="isolated")]), "shared-pool"
    )
    assert placed(made, "g2") == ["6", "7"]


def test_a_guest_gets_the_strategy_of_its_flavor_when_cpus_become_free() -> None:
    host = snapshot(plain(8, isolated="7"), [flavored(1, 1, strategy="isolated"), flavored(2, 1, strategy="isolated")])
    made = plan(host, "s", Request())
    assert (placed(made, "g1"), placed(made, "g2")) == (["7"], ["2-6"])
    after, placement = applied(host, made), record(made, host, None)
    assert planner.plan_from_placement(after, "s", Request(), placement).changes == ()
    later = planner.plan_from_placement(replace(after, guests=after.guests[1:]), "s", Request(), placement)
    assert [(str(change.target), str(change.after)) for change in later.changes] == [("guest g2 vcpu 0", "7")]


def test_a_guest_with_the_flavor_shared_pool_floats_beside_isolated_guests() -> None:
    top = plain(32, nodes=2, isolated="12-15,28-31")
    host = snapshot(top, [flavored(1, 2, strategy="shared-pool"), guest(2, 2, TWO.online)])
    made = stable_plan(host, "isolated")
    assert set(placed(made, "g1")) == {str(top.online - top.isolated - made.roles.housekeeping - made.roles.emulator)}
    assert placed(made, "g2") == ["12", "13"]


@pytest.mark.parametrize(
    ("isolated", "request_", "why"),
    [
        ("", Request(), "no isolated CPU is free"),
        ("31", Request(), "asked for 2 CPUs, "),
        ("31", Request("numa-local"), "asked for 2 CPUs, "),
    ],
)
def test_a_guest_that_cannot_have_its_flavors_strategy_gets_the_hosts(
    isolated: str, request_: Request, why: str
) -> None:
    top = plain(32, nodes=2, isolated=isolated)
    host = snapshot(top, [flavored(1, 2, strategy="isolated"), guest(2, 2, TWO.online)])
    made = plan(host, "s", request_)
    assert len(placed(made, "g1")) == 2
    start = f"guest g1: its flavor has pinner:strategy = 'isolated', but it gets {request_.strategy}: {why}"
    assert [warning for warning in made.warnings if warning.startswith(start)]
    assert made.unplaced == ()


@pytest.mark.parametrize(
    ("specs", "warning"),
    [
        (
            {"strategy": "fast"},
            "guest g1: its flavor has pinner:strategy = 'fast', which has no effect; "
            "valid is exclusive or isolated or numa-local or optimal or shared-pool",
        ),
        (
            {"excluded": "maybe"},
            "guest g1: its flavor has pinner:excluded = 'maybe', which has no effect; valid is true or false",
        ),
        (
            {"exmpt": "true"},
            "guest g1: its flavor has pinner:exmpt, which pinner does not know; "
            "valid are pinner:excluded and pinner:strategy",
        ),
    ],
)
def test_a_setting_of_a_flavor_that_has_no_effect_gives_a_warning(specs: dict[str, str], warning: str) -> None:
    made = plan(snapshot(TWO, [flavored(1, 2, **specs)]), "s", Request())
    assert warning in made.warnings
    assert placed(made, "g1") == ["4-15,20-31"] * 2


def test_a_rebalance_follows_the_flavors_of_the_guests() -> None:
    top = plain(32, nodes=2, isolated="12-15,28-31")
    host = snapshot(top, [flavored(1, 2, strategy="isolated"), flavored(2, 2, strategy="numa-local")])
    made = plan(host, "s", Request(rebalance=True))
    assert placed(made, "g1") == ["12", "13"]
    assert placed(made, "g2") in (["4-11"] * 2, ["20-27"] * 2)


def test_a_shared_set_that_splits_cores_bounds_only_the_vcpus() -> None:
    top = topology({0: [[c, c + 8] for c in range(8)]})
    made = plan(snapshot(top, [guest(1, 2, top.online)], shared=cpus("2-9")), "s", Request())
    assert made.roles.vcpu <= cpus("2-9")
    assert not made.roles.housekeeping & made.roles.emulator
    assert made.roles.housekeeping | made.roles.emulator <= cpus("0-1,10-15")
