"""Properties of every plan, whatever the strategy."""

import re
from dataclasses import replace
from importlib import metadata
from importlib.metadata import EntryPoint, entry_points

import pytest
from support.hosts import NOON, cpus, guest, plain, process, snapshot

from pinner.model.errors import Invalid
from pinner.model.guest.guest import InactiveGuest, NovaIdentity
from pinner.model.machine.process import NOT_PERMITTED
from pinner.model.plan.request import Request
from pinner.model.questions import GuestShape
from pinner.planning.planner import plan
from pinner.planning.questions.capacity import capacity, shape_rooms
from pinner.planning.strategies import strategy
from pinner.planning.strategies.shared_pool import SharedPool


def host():
    guests = [guest(n, 2, cpus("0-31"), iothreads=1, vhost_threads=1) for n in (1, 2)]
    return snapshot(plain(32), guests, [process(300, 9.0, "0-31")], warnings=("irqbalance runs",))


def test_the_entry_points_name_the_strategies_too() -> None:
    found = strategy.installed()
    assert list(found) == ["exclusive", "isolated", "manual", "numa-local", "optimal", "shared-pool"]
    assert {each.name for each in found.values()} == set(found)
    points = {point.name: point.value for point in entry_points(group=strategy.GROUP)}
    assert points.items() >= strategy.OWN.items()
    fields = set(Request.__dataclass_fields__)
    assert all(set(one.parameters) < fields and one.summary.endswith(".") for one in found.values())


_UNCACHED = strategy._plug_ins.__wrapped__


def _plug_in(monkeypatch: pytest.MonkeyPatch, *points: EntryPoint) -> None:
    # Installing a distribution for one test would take longer than all the others together.
    monkeypatch.setattr(metadata, "entry_points", lambda group: points)
    monkeypatch.setattr(strategy, "_plug_ins", _UNCACHED)


BROKEN = EntryPoint("magic", "no_such_module:Magic", strategy.GROUP)
LOADS_NOT = r"plug-in magic \(no_such_module:Magic\) does not load: ModuleNotFound"


def test_a_plug_in_that_does_not_load_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    _plug_in(monkeypatch, BROKEN)
    assert list(strategy.installed()) == sorted([*strategy.OWN, "magic"])
    assert re.match(f"not available, because {LOADS_NOT}", strategy.installed()["magic"].summary)
    with pytest.raises(Invalid, match=f"^strategy: 'magic' is not valid: .*{LOADS_NOT}"):
        plan(host(), "s", Request("magic"))


def test_a_plug_in_that_does_not_load_does_not_hide_another_of_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    _plug_in(monkeypatch, EntryPoint("good", f"{__name__}:Good", strategy.GROUP), BROKEN)
    assert isinstance(strategy.installed()["magic"], Good)


@pytest.mark.parametrize("kind", ["Nameless", "Numbered", "NotListable"])
def test_a_plug_in_that_cannot_be_listed_is_not_available(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _plug_in(monkeypatch, EntryPoint("magic", f"{__name__}:{kind}", strategy.GROUP))
    assert isinstance(strategy.installed()["magic"], strategy.Unavailable)


class Nameless:
    """A plug-in without what a list shows."""


class Good(SharedPool):
    """A plug-in with the name of another entry point."""

    name = "magic"


class Numbered(SharedPool):
    """A plug-in whose name is no text."""

    name = 7  # type: ignore[assignment]


class NotListable(SharedPool):
    """A plug-in whose parameters are no list."""

    name = "magic"
    parameters = None  # type: ignore[assignment]


def test_a_broken_plug_in_costs_the_lists_of_room_only_its_own_line(monkeypatch: pytest.MonkeyPatch) -> None:
    _plug_in(monkeypatch)
    rooms = capacity(host(), Request()).strategies
    shapes = shape_rooms(host(), Request(), GuestShape(1))
    _plug_in(monkeypatch, BROKEN)
    with_broken = {each.strategy: each for each in capacity(host(), Request()).strategies}
    shapes_with_broken = {each.strategy: each for each in shape_rooms(host(), Request(), GuestShape(1))}
    broken, shape = with_broken.pop("magic"), shapes_with_broken.pop("magic")
    assert (tuple(with_broken.values()), tuple(shapes_with_broken.values())) == (rooms, shapes)
    assert (broken.free_vcpus, shape.guests) == (0, 0)
    assert re.match(f"not available, because .*{LOADS_NOT}", broken.why)
    assert re.search(LOADS_NOT, shape.why)


def test_a_guest_whose_flavor_asks_for_a_broken_plug_in_gets_the_strategy_of_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _plug_in(monkeypatch, BROKEN)
    asking = guest(1, 2, cpus("0-7"), nova=NovaIdentity("i", "p", "u", "f", {"pinner:strategy": "magic"}))
    made = plan(snapshot(plain(8), [asking, guest(2, 1, cpus("0-7"))]), "s", Request())
    assert {want.target.name for want in made.wanted} >= {"g1", "g2"}
    assert re.search(f"guest g1: .* but it gets shared-pool: .*{LOADS_NOT}", "\n".join(made.warnings))


def test_a_broken_plug_in_does_not_keep_pinners_own_strategies_from_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    _plug_in(monkeypatch, BROKEN)
    assert plan(host(), "s", Request("numa-local")).request.strategy == "numa-local"


@pytest.mark.parametrize(
    "specs",
    [{"pinner:strategy": "numa-local"}, {"pinner:excluded": "true"}, {"pinner:excluded": "maybe"}, {"pinner:x": "1"}],
)
def test_a_broken_plug_in_does_not_keep_guests_whose_flavors_have_other_settings_from_a_plan(
    specs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _plug_in(monkeypatch, BROKEN)
    with_settings = guest(1, 2, cpus("0-7"), nova=NovaIdentity("i", "p", "u", "f", specs))
    made = plan(snapshot(plain(8), [with_settings, guest(2, 1, cpus("0-7"))]), "s", Request())
    assert {want.target.name for want in made.wanted} >= {"g2"}


def test_a_plug_in_does_not_replace_a_strategy_of_pinner(monkeypatch: pytest.MonkeyPatch) -> None:
    own = strategy.OWN["numa-local"]
    _plug_in(monkeypatch, *(EntryPoint(name, own, strategy.GROUP) for name in ("mine", "shared-pool")))
    assert list(strategy.installed()) == sorted(strategy.OWN)
    assert strategy.installed()["shared-pool"].name == "shared-pool"


def test_a_plan_names_its_host_snapshot_and_topology() -> None:
    made = plan(host(), "abc", Request())
    assert (made.host, made.basis.snapshot, made.basis.taken_at) == ("compute1", "abc", NOON)
    assert made.basis.fingerprint == host().topology.fingerprint
    assert made.warnings == ("irqbalance runs",)


def test_an_excluded_guest_that_libvirt_does_not_know_is_named_in_a_warning() -> None:
    """A mistyped name excluded nothing, without a word. It is no error: the guest may come later."""
    off = replace(host(), inactive=(InactiveGuest("off", "uuid-off"),))
    made = plan(off, "s", Request(excluded_guests=("g1", guest(2, 2, cpus("0-31")).uuid, "off", "uuid-off", "g3")))
    assert made.warnings == ("irqbalance runs", "excluded_guests names 'g3': libvirt knows no such guest now")


def test_the_id_follows_from_snapshot_and_request() -> None:
    ids = [
        plan(host(), snapshot_id, request).id
        for snapshot_id, request in (
            ("a", Request()),
            ("b", Request()),
            ("a", Request("numa-local")),
            ("a", Request(busy_threshold=3.0)),
        )
    ]
    assert len(set(ids)) == 4
    assert ids[0] == plan(host(), "a", Request()).id
    assert all(one.startswith("plan-") and len(one) == 21 for one in ids)


def test_host_processes_move_before_emulators_and_emulators_before_vcpus() -> None:
    made = plan(host(), "s", Request())
    kinds = [change.target.kind for change in made.changes]
    assert kinds == ["process", *["emulator", "vhost", "iothread"] * 2, *["vcpu"] * 4]


def test_only_guests_asked_for_by_name_or_uuid_are_placed() -> None:
    for name in ("g2", "00000000-0000-4000-8000-000000000002"):
        made = plan(host(), "s", Request(guests=(name,)))
        assert {want.target.name for want in made.wanted if want.target.kind != "process"} == {"g2"}


def test_a_guest_that_nova_pinned_is_skipped_and_its_cpus_are_not_allocated() -> None:
    guests = [guest(1, 2, cpus("0-31"), pins=["8", "9"], dedicated=True), guest(2, 2, cpus("0-31"))]
    made = plan(snapshot(plain(32), guests), "s", Request())
    assert {want.target.name for want in made.wanted} == {"g2"}
    assert str(made.roles.vcpu) == "10-31"
    assert [(left.label, left.why) for left in made.skipped] == [("guest g1", "Nova dedicates CPUs 8-9 to it")]


def test_of_a_mixed_guest_only_the_vcpus_with_a_cpu_of_their_own_count_as_dedicated() -> None:
    guests = [guest(1, 3, cpus("0-31"), pins=["8", "0-15", "0-15"], dedicated=True)]
    assert str(plan(snapshot(plain(32), guests), "s", Request()).roles.vcpu) == "9-31"


@pytest.mark.parametrize("state", ["paused", "blocked", "suspended"])
def test_a_guest_is_placed_in_every_state(state: str) -> None:
    made = plan(snapshot(plain(32), [replace(guest(1, 2, cpus("0-31")), state=state)]), "s", Request())
    assert len([change for change in made.changes if change.target.kind == "vcpu"]) == 2


def test_an_empty_host_has_a_plan_without_changes() -> None:
    made = plan(snapshot(plain(32)), "s", Request())
    assert (made.changes, made.wanted, made.blocked) == ((), (), "")
    assert all(term.before == term.after for term in made.objective.terms)


@pytest.mark.fault(24)
def test_a_vcpu_that_is_not_plugged_in_is_deferred() -> None:
    made = plan(snapshot(plain(32), [guest(1, 2, cpus("0-31"), unplugged=1)]), "s", Request())
    assert [left.label for left in made.skipped] == ["guest g1 vcpu 2"]
    assert made.skipped[0].why.startswith("deferred: it is not plugged in")
    assert [want.target.part for want in made.wanted if want.target.kind == "vcpu"] == [0, 1]


@pytest.mark.fault(13)
@pytest.mark.parametrize("name", ["shared-pool", "numa-local"])
def test_iothreads_are_in_every_plan(name: str) -> None:
    made = plan(snapshot(plain(32), [guest(1, 2, cpus("0-31"), iothreads=2)]), "s", Request(strategy=name))
    assert [want.target.part for want in made.wanted if want.target.kind == "iothread"] == [1, 2]


@pytest.mark.fault(14)
@pytest.mark.parametrize("name", ["shared-pool", "numa-local"])
def test_vhost_threads_run_beside_the_emulator_of_their_guest(name: str) -> None:
    guests = [guest(n, 2, cpus("0-31"), vhost_threads=2) for n in (1, 2)]
    made = plan(snapshot(plain(32, 2), guests), "s", Request(strategy=name))
    placed = {(want.target.kind, want.target.name): want.cpus for want in made.wanted}
    assert [want.target.kind for want in made.wanted].count("vhost") == 4
    for each in guests:
        assert placed["vhost", each.name] == placed["emulator", each.name] < cpus("0-31")


@pytest.mark.fault(14)
@pytest.mark.parametrize("strategy", ["shared-pool", "numa-local"])
def test_a_guests_kernel_thread_that_pinner_may_not_move_stays_and_the_plan_says_why(strategy: str) -> None:
    first = guest(1, 2, cpus("0-31"), vhost_threads=2)
    movable, timer = first.vhost_threads
    first = replace(first, vhost_threads=(movable, replace(timer, immovable_reason="not-permitted")))
    host = snapshot(plain(32), [first, guest(2, 2, cpus("0-31"))])
    made = plan(host, "s", Request(strategy=strategy))
    assert [change.target.part for change in made.changes if change.target.kind == "vhost"] == [movable.tid]
    assert [(left.label, left.why) for left in made.skipped] == [(f"guest g1 vhost {timer.tid}", NOT_PERMITTED)]
