"""What the settings inside guests have in common: a guest's owner has chosen what is set already, so it stays."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from pinner.model.change import StateChange, Target, group_of
from pinner.model.kinds import KINDS, TargetKind
from pinner.model.plan.plan import LeftOut, Plan, Wanted
from pinner.model.states import State
from pinner.planning.available.exclusions import is_excluded_guest, is_named
from pinner.planning.request.context import Context
from pinner.planning.settings.row import Additions, PlanRow

STAYS = "in place"
_EXPECTED = (
    "a host that asks the agents of its guests; set [libvirt] guest_agents = true in its pinner.conf, restart "
    "pinner there, and take a new snapshot"
)


def row(
    kind: TargetKind,
    noun: str,
    wanted: Callable[[Any], Iterable[Wanted]],
    commands: Callable[[Target, State], Iterator[str]],
) -> PlanRow:
    added = partial(_additions, kind, noun, wanted)
    return PlanRow(_objection, commands, added, f"{noun} inside guests", _EXPECTED, wanted)


def _additions(
    kind: TargetKind, noun: str, wanted: Callable[[Any], Iterable[Wanted]], plan: Plan, context: Context
) -> Additions:
    guests = getattr(context.snapshot, KINDS[kind].module) or ()
    whys = {guest.guest: _why_left_out(guest.guest, plan, context) or guest.unread for guest in guests}
    chosen = [(guest.name, tuple(wanted(guest))) for guest in guests if not whys[guest.guest]]
    return Additions(
        wanted=tuple(want for _, wants in chosen for want in wants),
        skipped=tuple(
            LeftOut(guest.as_target, f"its {noun} stays: {why}") for guest in guests if (why := whys[guest.guest])
        ),
        warnings=tuple(
            f"guest {name}: this changes the inside of the guest, until the guest restarts"
            for name, wants in chosen
            if any(want.reason != STAYS for want in wants)
        ),
    )


def _objection(change: StateChange, plan: Plan, context: Context) -> str:
    """What the guest says is no objection: see ``misfits``."""
    return _why_left_out(group_of(change.target).owner, plan, context)


def _why_left_out(uuid: str, plan: Plan, context: Context) -> str:
    guest = next((each for each in context.snapshot.guests if each.uuid == uuid), None)
    if guest is None or is_excluded_guest(guest, plan.request):
        return "the guest is excluded"
    if plan.request.guests and not is_named(guest, plan.request.guests):
        return "the request names other guests"
    return ""
