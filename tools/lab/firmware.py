"""The table of interrupt controllers (MADT) that gives a lab host's CPUs their numbers. Pure.

The kernel numbers CPUs in the order of this table, and QEMU always writes it socket by socket and core by core. The
kernel takes a table of the same name from the front of its initial ram disk instead, where its revision is higher.

Sources: ACPI specification 6.5, 5.2.12 (MADT); the kernel's Documentation/admin-guide/acpi/initrd_table_override.rst
and Documentation/driver-api/early-userspace/buffer-format.rst.
"""

import struct
from collections.abc import Iterator

from lab.topology import LabTopology, Position

_OEM = (b"BOCHS ", b"BXPC    ")
"""QEMU's names in its tables; a table of other names replaces nothing."""
_REVISION = 2
"""One more than QEMU's own."""
_LOCAL_APIC, _IO_APIC = 0xFEE00000, 0xFEC00000
_PC_INTERRUPTS = ((0, 2, 0), (5, 5, 13), (9, 9, 13), (10, 10, 13), (11, 11, 13))
"""Source, global interrupt and flags of the interrupts that QEMU's q35 machine wires differently from a plain PC."""


def early_archive(topology: LabTopology) -> bytes:
    """A cpio archive (newc) with only the table, to be put before the initial ram disk."""
    files = (("kernel/firmware/acpi/apic.aml", madt(topology)), ("TRAILER!!!", b""))
    archive = b"".join(_member(number, name, data) for number, (name, data) in enumerate(files))
    return archive + b"\0" * (-len(archive) % 512)


def madt(topology: LabTopology) -> bytes:
    """The table, with a local APIC for each CPU in the order of their numbers."""
    body = struct.pack("<II", _LOCAL_APIC, 1) + b"".join(_controllers(topology))
    header = struct.pack("<4sIBB6s8sI4sI", b"APIC", 36 + len(body), 3, 0, *_OEM, _REVISION, b"PNNR", 1)
    table = bytearray(header + body)
    table[9] = -sum(table) & 0xFF
    return bytes(table)


def apic_id(topology: LabTopology, position: Position) -> int:
    """The APIC id of a position as QEMU computes it: each level has as many bits as it needs."""
    thread_bits, core_bits = ((size - 1).bit_length() for size in (topology.threads, topology.cores))
    return position.socket << core_bits + thread_bits | position.core << thread_bits | position.thread


def _controllers(topology: LabTopology) -> Iterator[bytes]:
    for position in topology.positions:
        place = (position.socket * topology.cores + position.core) * topology.threads + position.thread
        yield struct.pack("<BBBBI", 0, 8, place, apic_id(topology, position), 1)
    yield struct.pack("<BBBBII", 1, 12, 0, 0, _IO_APIC, 0)
    for source, interrupt, flags in _PC_INTERRUPTS:
        yield struct.pack("<BBBBIH", 2, 10, 0, source, interrupt, flags)
    yield struct.pack("<BBBHB", 4, 6, 0xFF, 0, 1)


def _member(number: int, name: str, data: bytes) -> bytes:
    fields = (number, 0o100644, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
    header = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
    return _padded(header) + _padded(data)


def _padded(part: bytes) -> bytes:
    return part + b"\0" * (-len(part) % 4)
