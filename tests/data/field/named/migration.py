"""Guest g1 is sent to another host over four channels. The threads start beside the emulator, on 2-3.

Right: they stay with the emulator, and lists of guests show them.
"""

from dataclasses import replace

from support.hosts import cpus, guest, plain, snapshot

from pinner.model.machine.process import Thread

_GUEST = guest(1, 2, cpus("2-3"), pins=["4-7"] * 2)
NAMES = ("live_migration", *(f"multifdsend_{n}" for n in range(4)))
_SENDING = tuple(Thread(900 + n, 7, name, cpus("2-3")) for n, name in enumerate(NAMES))
GUEST = replace(_GUEST, emulator=replace(_GUEST.emulator, threads=_GUEST.emulator.threads + _SENDING))
HOST = snapshot(plain(16), [GUEST])
