"""The masks of QEMU's threads, read from files only where they may have changed."""

from collections.abc import Callable, Container
from functools import lru_cache
from typing import NamedTuple

from pinner.host.kernel import cpu_clocks
from pinner.model.change import Target, ThreadKey, ThreadMask
from pinner.model.cpuset import CpuSet


class _Known(NamedTuple):
    """The masks while the process had run for ``ran_ns``, also as the kernel's bits."""

    process: ThreadKey
    ran_ns: int
    masks: tuple[ThreadMask, ...]
    bits: list[bytes | None]


class KnownMasks:
    """While a process's CPU clock stands still it has the same threads; system calls say whether their masks changed.
    Threads may share it."""

    def __init__(self) -> None:
        self._known: dict[Target, _Known] = {}
        self._settings = cpu_clocks.SettingsReader()

    def masks(
        self, target: Target, process: ThreadKey | None, read: Callable[[], tuple[ThreadMask, ...]]
    ) -> tuple[ThreadMask, ...]:
        """``read`` reads from files, and its errors are raised. ``process`` is the first thread of the target's
        process."""
        ran, known = cpu_clocks.ran_ns(process.tid) if process else None, self._known.get(target)
        if known and ran == known.ran_ns and process == known.process and self._bits(known.masks) == known.bits:
            return known.masks
        masks = read()
        if process is not None and ran is not None:
            bits = self._bits(masks)
            # The kernel leaves out CPUs that are offline; then its bits do not say what the file says.
            if bits == [_bits_of(each.cpus, self._settings.size) for each in masks]:
                self._known[target] = _Known(process, ran, masks, bits)
        return masks

    def keep(self, guests: Container[str]) -> None:
        """Drop the masks of all other guests (by UUID)."""
        for target in [each for each in tuple(self._known) if each.owner not in guests]:
            self._known.pop(target, None)

    def _bits(self, masks: tuple[ThreadMask, ...]) -> list[bytes | None]:
        ask = self._settings.mask
        return [ask(each.tid) for each in masks]


@lru_cache(maxsize=4096)
def _bits_of(cpus: CpuSet, size: int) -> bytes:
    try:
        return sum(1 << cpu for cpu in cpus).to_bytes(size, "little")
    except OverflowError:
        return b""
