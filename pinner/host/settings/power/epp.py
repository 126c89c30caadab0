"""The energy preferences below /sys/devices/system/cpu/cpufreq (admin-guide/pm/intel_pstate.rst, amd-pstate.rst)."""

import errno
import re
from collections.abc import Mapping
from pathlib import Path

from pinner.host.kernel import beneath, files
from pinner.host.settings.power.governors import CPUS, FOLDER, LACKS, domain, parse, read_word
from pinner.host.settings.row import HostRow, written
from pinner.model.change import Target
from pinner.model.errors import Invalid
from pinner.model.settings.power import EnergyDomain
from pinner.model.states import Word

_FILE, _OFFERED = "energy_performance_preference", "energy_performance_available_preferences"
_WORD = re.compile(r"[a-z0-9_]{1,20}", re.ASCII)
"""The kernel reads 20 characters."""
_HINTS = {
    errno.EROFS: LACKS,
    errno.EBUSY: "; with the governor performance, the driver allows performance alone",
    errno.EINVAL: "; does the driver have this preference?",
}


def read_preferences(root: Path, of_cpus: Mapping[int, str]) -> tuple[EnergyDomain, ...]:
    """Domains with an online CPU; ``of_cpus`` has the governors of these."""
    domains = []
    for number, folder in files.numbered(root / FOLDER, "policy").items():
        preference, cpus = files.text(folder / _FILE) or "", parse(files.text(folder / CPUS))
        governor = next((of_cpus[cpu] for cpu in cpus or () if cpu in of_cpus), "")
        if cpus and governor and _WORD.fullmatch(preference):
            offered = tuple(filter(_WORD.fullmatch, (files.text(folder / _OFFERED) or "").split()))
            domains.append(EnergyDomain(number, cpus, Word(preference), offered, governor))
    return tuple(domains)


def preference_of(root: Path, target: Target) -> Word:
    """Raises ApplyFailed where all its CPUs are offline."""
    with domain(root, target) as folder:
        return Word(read_word(folder, _FILE, target))


def set_preference(root: Path, target: Target, preference: Word) -> None:
    if not _WORD.fullmatch(preference.word):
        raise Invalid("energy preference", preference.word[:80], "the name of a preference, or a number")
    with (
        domain(root, target) as folder,
        written(target, preference, lambda: Word(read_word(folder, _FILE, target)), _HINTS),
    ):
        beneath.write(folder, _FILE, preference.word)


ROW: HostRow[Word] = HostRow(
    lambda access, target: preference_of(access.root, target),
    lambda access, target, state: set_preference(access.root, target, state),
    lambda facts: read_preferences(facts.root, facts.governors),
)
