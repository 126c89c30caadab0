"""Reads the active guests one by one. libvirt reads all of them in one call, but one guest can block that call for all.

While a call of libvirt holds the lock of a guest, such as a dump into a pipe that nobody reads, every call about this
guest waits, and so does every call that lists the guests.
"""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat

from pinner.host.virt.guests import DomainDescription
from pinner.model.errors import ApplyFailed, Busy, Gone

UNANSWERED = "libvirt does not answer about it; another call about this guest, such as a dump, has not ended"
_AT_ONCE = 8
"""How many guests are read at the same time: a few that do not answer must not delay the others."""


def described(names: Mapping[str, str], describe: Callable[[str, str], DomainDescription]) -> list[DomainDescription]:
    """The guests, named by UUID, that libvirt has. A guest that does not answer is unread.

    ``describe`` gets the UUID and the name. It raises Gone where libvirt has no such guest, and Busy where libvirt does
    not answer about the guest in time. Other errors of libvirt about one guest are a part of its description, too.
    """
    with ThreadPoolExecutor(_AT_ONCE, "guest") as threads:
        found: Iterable[DomainDescription | None] = threads.map(_one, names, names.values(), repeat(describe))
        return [each for each in found if each is not None]


def _one(uuid: str, name: str, describe: Callable[[str, str], DomainDescription]) -> DomainDescription | None:
    try:
        return describe(uuid, name)
    except Gone:
        return None
    except Busy:
        why = UNANSWERED
    except ApplyFailed as error:
        why = str(error)
    return DomainDescription(uuid, name, "unknown", "", None).without_xml(why)
