"""A service with a real agent, in the test's process, for the guests of a libvirtd."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from support.server.accounts import WITHOUT_NOVA

from pinner import wiring
from pinner.service.protocol import Service


@contextmanager
def service_of(libvirtd: str, folder: Path) -> Iterator[Service]:
    """For the libvirtd at this URI; the host is named ``here``."""
    config = folder / "pinner.conf"
    config.write_text(
        f"[agent]\nstate_dir = {folder}/state\n[libvirt]\nuri = {libvirtd}\ncall_timeout = 60\n[host]\nname = here\n"
        f"{WITHOUT_NOVA}"
    )
    settings = wiring.configuration([config])
    (folder / "state").mkdir(mode=0o700)
    with ExitStack() as undo:
        agent = wiring.local_agent(settings, frozenset(), undo)
        parts = wiring.service_parts(settings, {"here": agent}, f"sqlite:///{folder}/db.sqlite", undo)
        with closing(parts):
            yield parts.service


def ended(service: Service, run: str) -> str:
    """The state of this run at its end."""
    deadline = time.monotonic() + 120
    while (found := service.run(run)).state == "running":
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return found.state
