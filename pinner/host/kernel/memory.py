"""Moves memory between NUMA nodes: pinner's only call of migrate_pages(2). libnuma comes with QEMU and libvirt."""

import ctypes
import errno
import os
from collections.abc import Collection

from pinner.model.errors import ApplyFailed, Gone, NotPermitted

_WORD = 8 * ctypes.sizeof(ctypes.c_ulong)


def migrate(pid: int, away: Collection[int], node: int) -> None:
    """Returns when all movable pages have moved. Raises Gone, NotPermitted; ApplyFailed, also if the node is full."""
    if not away:
        return
    what = f"memory of process {pid}"
    bits = (max(node, *away) // _WORD + 1) * _WORD
    try:
        library = ctypes.CDLL("libnuma.so.1", use_errno=True)
    except OSError as error:
        raise ApplyFailed(what, f"libnuma cannot be loaded: {error}") from None
    # The kernel reads one bit less than the size says.
    size = ctypes.c_ulong(bits + 1)
    if library.migrate_pages(ctypes.c_int(pid), size, _mask(away, bits), _mask([node], bits)) >= 0:
        return
    match ctypes.get_errno():
        case errno.ESRCH:
            raise Gone(f"process {pid}")
        case errno.EPERM:
            raise NotPermitted(what, "moving its memory needs CAP_SYS_NICE")
        case errno.ENOMEM:
            nodes = ", ".join(map(str, sorted(away)))
            raise ApplyFailed(what, f"node {node} has too little free memory for the pages on nodes {nodes}")
        case number:
            raise ApplyFailed(what, f"the kernel does not move the pages to node {node}: {os.strerror(number)}")


def _mask(nodes: Collection[int], bits: int) -> ctypes.Array[ctypes.c_ulong]:
    words = [sum(1 << (node % _WORD) for node in nodes if node // _WORD == word) for word in range(bits // _WORD)]
    return (ctypes.c_ulong * len(words))(*words)
