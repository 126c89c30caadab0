"""Whether the changes of a run can still be undone: their guest or process must exist."""

from collections.abc import Iterable

from pinner.apply.ports import Host
from pinner.model.change import AffinityChange, MemoryChange, StateChange
from pinner.model.errors import Gone, PinnerError
from pinner.model.journal import Entry, Run

IN_PLACE = ("intent", "done", "stuck")


def can_be_undone(run: Run, entries: Iterable[Entry], host: Host) -> bool:
    """Whether one of the run's changes is in place on a target that has not ended. A change of a persistent definition
    outlives its guest, so a run with ``persist`` always can."""
    in_place = [entry for entry in entries if entry.state in IN_PLACE]
    return (run.persist and bool(in_place)) or any(not _has_ended(entry, host) for entry in in_place)


def _has_ended(entry: Entry, host: Host) -> bool:
    try:
        match entry.change:
            case AffinityChange(target=target):
                host.masks(target)
            case StateChange(target=target):
                host.state(target)
            case MemoryChange(target=target):
                host.memory(target)
    except Gone:
        return True
    except PinnerError:
        return False  # not known
    return False
