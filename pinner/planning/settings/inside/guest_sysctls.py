"""Receive buffers of UDP inside guests. A larger one stays."""

from collections.abc import Iterator
from shlex import quote

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.plan.plan import Wanted
from pinner.model.settings.inside import BUFFERS, RMEM_DEFAULT, GuestSysctls
from pinner.model.states import Number, State
from pinner.planning.settings.inside.common import STAYS, row


def _wanted(sysctls: GuestSysctls) -> Iterator[Wanted]:
    """The buffer of programs that ask for none grows only where packets were lost: all of a guest's programs get it."""
    for key, value in sysctls.values.items():
        why = "programs may ask for receive buffers that hold a burst"
        if key == RMEM_DEFAULT:
            why = f"{sysctls.lost} UDP packets found a receive buffer full" if sysctls.lost else ""
        is_small = value < BUFFERS[key] and bool(why)
        number = Number(BUFFERS[key] if is_small else value)
        yield Wanted(sysctls.target(key), CpuSet(), why if is_small else STAYS, number)


def _commands(target: Target, state: State) -> Iterator[str]:
    yield f"# inside the guest: sysctl -w {quote(target.owner.split(' ')[2])}={state}"


ROW = row("guest_sysctl", "UDP buffers", _wanted, _commands)
