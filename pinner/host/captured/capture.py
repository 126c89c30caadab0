"""Copies the files of /proc and /sys that an inventory reads, and those that hwloc's lstopo reads. The guests are in
libvirt/: capabilities.xml has the topology; guests/UUID/ has live.xml, definition.xml and state."""

import glob
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, count
from pathlib import Path
from typing import Protocol, cast, get_args

from lxml import etree

from pinner.host.captured import scrub
from pinner.host.captured.scrub import Alias, Scrubber
from pinner.host.hardware import sysfs
from pinner.host.kernel import cgroups, files, kernel
from pinner.host.processes import qemu
from pinner.host.reading import captured
from pinner.host.virt import domain_xml
from pinner.host.virt.guests import TAP_COUNTERS, DomainDescription, read_guests
from pinner.model.errors import Invalid
from pinner.model.guest.guest import Guest, GuestState, InactiveGuest
from pinner.model.reading import SavedReading

_MACHINE = (
    "proc/cmdline",
    "proc/cpuinfo",
    "proc/meminfo",
    "proc/mounts",
    "proc/version",
    "proc/sys/kernel/osrelease",
    "sys/devices/system/cpu/*",
    "sys/devices/system/cpu/cpu[0-9]*/online",
    "sys/devices/system/cpu/cpu[0-9]*/topology/*",
    "sys/devices/system/cpu/cpu[0-9]*/cache/index*/*",
    "sys/devices/system/cpu/cpu[0-9]*/cpu_capacity",
    *(f"sys/devices/system/cpu/cpu[0-9]*/cpufreq/{name}" for name in ("base_frequency", "scaling_governor")),
    "sys/devices/system/cpu/cpufreq/policy[0-9]*/related_cpus",
    "sys/devices/system/cpu/cpufreq/policy[0-9]*/energy_performance_*",
    "sys/devices/system/cpu/cpu[0-9]*/power/pm_qos_resume_latency_us",
    *(f"sys/devices/system/cpu/cpu[0-9]*/cpuidle/state[0-9]*/{name}" for name in ("disable", "latency")),
    *(f"sys/devices/{unit}/cpus" for unit in ("cpu_atom", "cpu_core", "cpu_lowpower")),
    "sys/devices/system/node/*",
    "sys/devices/system/node/node[0-9]*/*",
    "sys/devices/system/node/node[0-9]*/hugepages/*/*",
    "sys/kernel/mm/hugepages/*/*",
    *(f"sys/bus/pci/devices/*/{name}" for name in ("class", "device", "numa_node", "vendor")),
    *(f"sys/class/net/*/{name}" for name in ("mtu", "device/numa_node", "device/uevent")),
)
_PROCESS = ("cmdline", "cgroup", "schedstat", "stat", "status")
_THREAD = ("schedstat", "stat", "status")
_CGROUP = ("cgroup.controllers", "cpuset.cpus.isolated")
_PARTITION = ("cpuset.cpus.effective", "cpuset.cpus.partition")


def capture(
    root: Path,
    folder: Path,
    guests: Sequence[DomainDescription] = (),
    capabilities: str = "",
    reading: SavedReading | None = None,
    *,
    scrub: bool,
) -> int:
    """Save the machine in ``folder``, mode 0700. Returns the number of files. No ``capabilities``: libvirt did not
    answer. Unreadable files and ended processes are left out. Raises Invalid for a root without CPUs, and a folder that
    is not empty or writable."""
    sysfs.present(root)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            _take(descriptor, folder)
            # By the descriptor: the owner of the folder above could put another folder in the place of this one.
            copy = _Copy(root, Path(f"/proc/self/fd/{descriptor}"), guests, scrub=scrub)
            files_of_libvirt = copy.libvirt(capabilities) if capabilities else 0
            return copy.all() + files_of_libvirt + (copy.reading(reading) if reading else 0)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise Invalid("DIR", str(folder), f"a folder that can be written ({error.strerror})") from None


def _take(descriptor: int, folder: Path) -> None:
    """Raises Invalid for another user's folder, or one with files: others could replace root's file by a symlink."""
    if os.fstat(descriptor).st_uid == os.geteuid() and not os.listdir(descriptor):
        os.fchmod(descriptor, 0o700)
        if not os.listdir(descriptor):  # nobody can write into it any more
            return
    raise Invalid("DIR", str(folder), "a new or empty folder of this user, no link to one")


class _Copy:
    def __init__(self, root: Path, folder: Path, guests: Sequence[DomainDescription], *, scrub: bool) -> None:
        self._root = root
        self._folder = folder
        self._guests = guests
        self._aliases = aliases(guests) if scrub else {}
        self._scrubber = Scrubber(self._aliases) if scrub else None

    def all(self) -> int:
        machine = chain.from_iterable(_present(self._root, pattern) for pattern in _MACHINE)
        # The folders of units are named after guests.
        guests = _of_guests(self._root, self._guests, units=self._scrubber is None)
        paths = chain(machine, _cgroups(self._root), _threads(self._root), guests)
        return sum(self._copy(path.relative_to(self._root)) for path in paths)

    def libvirt(self, capabilities: str) -> int:
        written = capabilities_file(capabilities)
        for guest in self._guests:
            written |= as_files(guest, self._aliases.get(guest.uuid))
        return self._write(written)

    def reading(self, reading: SavedReading) -> int:
        return self._write(captured.as_file(captured.scrubbed(reading) if self._scrubber else reading))

    def _write(self, contents: Mapping[Path, bytes]) -> int:
        for name, data in contents.items():
            path = self._folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return len(contents)

    def _copy(self, name: Path) -> bool:
        try:
            data: bytes | None = files.read(str(self._root / name), records=True)
        except OSError:
            return False
        if self._scrubber is not None:
            data = self._scrubber.scrubbed(name, data or b"")
        if data is None or (resolved := self._resolve(name)) is None:
            return False
        path = self._folder / resolved
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return True

    def _resolve(self, name: Path) -> Path | None:
        """None for a symbolic link out of the root."""
        if name.parts[0] == "proc":
            return name
        here = Path()
        for part in name.parts:
            here /= part
            if not (self._root / here).is_symlink():
                continue
            target, link = (self._root / here).readlink(), self._folder / here
            here = Path(os.path.normpath(here.parent / target))
            if here.is_absolute() or here.parts[0] == "..":
                return None
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.is_symlink():
                link.symlink_to(target)
        return here


def _present(folder: Path, pattern: str) -> list[Path]:
    """Path.glob fails where a folder is removed meanwhile."""
    return [folder / name for name in sorted(glob.iglob(pattern, root_dir=folder, include_hidden=True))]


def _cgroups(root: Path) -> Iterator[Path]:
    mount = kernel.cpuset_mount(root)
    if mount.version == "v2":
        yield from (mount.folder / name for name in _CGROUP)
        yield from _partitions(mount.folder)


def _partitions(folder: Path) -> Iterator[Path]:
    is_partition = cache(lambda path: files.text(path / cgroups.PARTITION) not in (None, "member"))
    for path in filter(is_partition, cgroups.below(folder, is_partition)):
        yield from (path / name for name in _PARTITION)


def _threads(root: Path) -> Iterator[Path]:
    for pid in files.numbers(f"{root}/proc"):
        process = root / "proc" / pid
        yield from (process / name for name in _PROCESS)
        for tid in files.numbers(f"{process}/task"):
            yield from (process / "task" / tid / name for name in _THREAD)


def _of_guests(root: Path, guests: Sequence[DomainDescription], *, units: bool) -> Iterator[Path]:
    mount = kernel.cpuset_mount(root)
    names = (cgroups.CPUS, cgroups.PARTITION, *cgroups.EFFECTIVE.values())
    for pid in qemu.find(root, {guest.uuid for guest in guests}).qemus.values() if guests else ():
        yield root / f"proc/{pid}/numa_maps"
        for folder in (mount.folder, *cgroups.folders_of(root, mount, pid)) if units else ():
            yield from (folder / name for name in names)
    for name, *_ in chain.from_iterable(domain_xml.parse(guest.xml).taps for guest in guests):
        yield from (root / "sys/class/net" / Path(name).name / "statistics" / counter for counter in TAP_COUNTERS)


FOLDER = Path("libvirt")
_CAPABILITIES = FOLDER / "capabilities.xml"
_GUESTS = FOLDER / "guests"


class DescribedGuests(Protocol):
    def descriptions(self) -> Sequence[DomainDescription]: ...

    def capabilities(self) -> str: ...


class CapturedGuests:
    def __init__(self, root: Path) -> None:
        self._root = root

    def guests(self, root: Path, *, memory: bool = True) -> tuple[Guest, ...]:
        domains = []
        for description in self.descriptions():
            try:
                domains.append(description.parsed())
            except (etree.XMLSyntaxError, ValueError, Invalid) as error:
                raise _damaged(root / _GUESTS / description.uuid, str(error)) from None
        return read_guests(root, domains, qemu.find(root, {domain.uuid for domain in domains}), memory=memory)

    def descriptions(self) -> tuple[DomainDescription, ...]:
        return tuple(_read(folder) for folder in sorted((self._root / _GUESTS).glob("*")))

    def inactive(self) -> tuple[InactiveGuest, ...]:
        return ()

    def capabilities(self) -> str:
        return _text(self._root / _CAPABILITIES)


def captured_guests(root: Path) -> CapturedGuests | None:
    """None where it was captured without libvirt."""
    return CapturedGuests(root) if (root / _CAPABILITIES).is_file() else None


def aliases(descriptions: Sequence[DomainDescription]) -> dict[str, Alias]:
    numbers = count(1)
    return {
        description.uuid: Alias(f"guest-{number}", f"00000000-0000-4000-8000-{number:012}")
        for description, number in zip(descriptions, numbers, strict=False)
    }


def as_files(description: DomainDescription, alias: Alias | None) -> dict[Path, bytes]:
    folder = _GUESTS / (alias.uuid if alias else description.uuid)
    written = {folder / "live.xml": scrub.reduced(description.xml, alias), folder / "state": description.state}
    if description.definition is not None:
        written[folder / "definition.xml"] = scrub.reduced(description.definition, alias)
    return {path: f"{text}\n".encode() for path, text in written.items()}


def capabilities_file(xml: str) -> dict[Path, bytes]:
    return {_CAPABILITIES: f"{scrub.capabilities(xml)}\n".encode()}


def _read(folder: Path) -> DomainDescription:
    xml = _text(folder / "live.xml")
    state = _text(folder / "state")
    definition = folder / "definition.xml"
    if state not in get_args(GuestState):
        raise _damaged(folder / "state", f"{state!r} is none of {', '.join(get_args(GuestState))}")
    try:
        domain = etree.fromstring(xml, etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=True))
    except etree.XMLSyntaxError as error:
        raise _damaged(folder / "live.xml", str(error)) from None
    return DomainDescription(
        uuid=domain.findtext("uuid", ""),
        name=domain.findtext("name", ""),
        state=cast("GuestState", state),
        xml=xml,
        definition=_text(definition) if definition.exists() else None,
    )


def _text(path: Path) -> str:
    text = files.text(path)
    if text is None:
        raise _damaged(path, "it cannot be read")
    return text


def _damaged(path: Path, why: str) -> Invalid:
    return Invalid("--root", str(path), f"a file that `pinner capture` wrote ({why})")
