"""Programs that change what pinner places: known ones, and another pinner."""

import re

from pinner.model.processes.process import Process

PLACERS = {
    "numad": "it moves guests' threads and memory",
    "tuned": "its profiles may set the affinity of the same threads",
    "ksmtuned": "it switches KSM on when memory is short",
    "cpuset": "it moves threads between cpusets",
    "auto-cpufreq": "it changes the governors",
}
"""The names of known programs, and how they change it."""
_SERVES = re.compile(r"(?:\S*/)?(?:python\S* (?:-\S+ )*(?:\S*/)?)?pinner serve\b")
"""The command line of a server. One that starts a server, as sudo does, has other words before."""


def is_known_placer(process: Process) -> bool:
    """Whether the process has the name of a known program."""
    return process.name in PLACERS and not process.kernel


def is_another_pinner(process: Process) -> bool:
    """Whether the process has the command line of a server of pinner, and is not this one."""
    return bool(_SERVES.match(process.command)) and process.immovable_reason != "pinner" and not process.kernel
