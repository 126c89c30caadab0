"""The wall clock of pinner's processes: libfaketime shows it to them, and a scenario steps it while they run.

The monotonic clock stays as it is, and so do the clocks of libvirtd, of the guests and of this process.
"""

import time
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path

_CACHE_SECONDS = 1
"""libfaketime reads the file again once this number of whole seconds has passed, which it counts from second to
second: an offset stays in use for up to one second more."""
_HOUR = timedelta(hours=1)


class Clock:
    """A clock that differs from the real one by a number of hours, at first by none.

    A scenario takes less than half an hour, so that the real time follows from the time that pinner recorded.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self._file.write_text("+0\n")
        self._file.chmod(0o644)
        self._began = datetime.now(UTC)
        spec = find_spec("libfaketime")
        assert spec is not None
        assert spec.origin is not None
        library = Path(spec.origin).parent / "vendor/libfaketime/src/libfaketime.so.1"
        self.variables = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": str(_CACHE_SECONDS),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }
        """The environment variables of a process that has this clock."""

    def step(self, hours: int) -> None:
        """Let the clock differ by this number of hours from now on; returns once all processes have noticed."""
        self._file.write_text(f"{3600 * hours:+d}\n")
        time.sleep(_CACHE_SECONDS + 1.1)

    def close(self) -> None:
        """Delete the shared memory that libfaketime has left of killed processes."""
        for file in Path("/dev/shm").glob("*faketime_s*_*"):
            if not Path("/proc", file.name.rpartition("_")[2]).exists():
                file.unlink(missing_ok=True)

    def real(self, recorded: str) -> datetime:
        """The real time at which pinner recorded this time."""
        at = datetime.fromisoformat(recorded)
        return at - round((at - self._began) / _HOUR) * _HOUR
