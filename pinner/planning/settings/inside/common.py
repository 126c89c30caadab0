"""What the settings inside guests have in common: a guest's owner has chosen what is set already, so it stays."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from pinner.model.change import Target
from pinner.model.plan.plan import LeftOut, Plan, Wanted
from pinner.model.settings.inside import GuestSettings
from pinner.planning.available.exclusions import is_excluded_guest
from pinner.planning.request.context import Context
from pinner.planning.settings.row import Additions

STAYS = "in place"
EXPECTED = (
    "a host that asks the agents of its guests; set [libvirt] guest_agents = true in its pinner.conf, restart "
    "pinner there, and take a new snapshot"
)
G = TypeVar("G", bound=GuestSettings)


def additions(
    noun: str, guests: Sequence[G] | None, wanted: Callable[[G], Iterable[Wanted]], plan: Plan, context: Context
) -> Additions:
    whys = {guest.guest: why_left_out(guest, plan, context) for guest in guests or ()}
    chosen = [(guest.name, tuple(wanted(guest))) for guest in guests or () if not whys[guest.guest]]
    return Additions(
        wanted=tuple(want for _, wants in chosen for want in wants),
        skipped=tuple(
            LeftOut(guest.as_target, f"its {noun} stays: {why}") for guest in guests or () if (why := whys[guest.guest])
        ),
        warnings=tuple(
            f"guest {name}: this changes the inside of the guest, until the guest restarts"
            for name, wants in chosen
            if any(want.reason != STAYS for want in wants)
        ),
    )


def guest_of(target: Target, guests: Sequence[G] | None) -> G:
    """Of a target that the snapshot has."""
    uuid = target.owner.partition(" ")[0]
    return next(guest for guest in guests or () if guest.guest == uuid)


def why_left_out(settings: GuestSettings, plan: Plan, context: Context) -> str:
    guest = next((each for each in context.snapshot.guests if each.uuid == settings.guest), None)
    if guest is None or is_excluded_guest(guest, plan.request):
        return "the guest is excluded"
    if plan.request.guests and not {guest.name, guest.uuid} & {*plan.request.guests}:
        return "the request names other guests"
    return settings.unread
