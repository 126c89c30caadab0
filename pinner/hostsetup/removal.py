"""Removes what setup-host has made."""

import os
import pwd
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

from pinner.hostsetup import account, steps
from pinner.hostsetup.layout import ACCOUNT, UNITS, Layout
from pinner.hostsetup.setup import check_host
from pinner.hostsetup.steps import Step
from pinner.model.errors import PinnerError
from pinner.server import folders
from pinner.store.journal.journal import StoredJournal


class StillApplied(PinnerError):
    """pinner's changes are still made on this host, or a run is in progress."""

    code = "still_applied"


def remove_host(layout: Layout, say: Callable[[str], None], *, dry_run: bool, purge: bool, force: bool) -> None:
    """The state and a changed configuration stay, except with ``purge``. Raises StillApplied, except with ``force``,
    Invalid and PinnerError."""
    check_host(layout)
    if not force and (why := still_applied(layout.state)):
        raise StillApplied(why)
    units = [path for path in layout.installed() if path.exists()]
    for path in units:
        steps.check_is_pinners(path)
    if not layout.is_image:
        steps.execute(_stop(layout), say, dry_run=dry_run)
    steps.execute(_remove_files(layout, purge=purge), say, dry_run=dry_run)
    if layout.is_image:
        return
    steps.execute(_state_and_account(layout, purge=purge), say, dry_run=dry_run)
    for kept in (layout.config, layout.state):
        if kept.exists() and not dry_run:
            say(f"kept: {kept} (--purge removes it)")


def still_applied(state: Path) -> str:
    """Why pinner must not be removed yet, by the agent's journal. An enforced policy that has placed nothing has no
    applied run, and is not seen."""
    if not (state / "agent" / "journal.sqlite").exists():
        return ""
    with closing(StoredJournal(state / "agent")) as journal:
        runs = journal.in_effect()
    if not runs:
        return ""
    named = ", ".join(run.id for run in runs[:3]) + (", ..." if len(runs) > 3 else "")
    return (
        f"{len(runs)} runs are still applied or in progress on this host ({named}): take everything off "
        "the host (pinner rollback --all --delete-policy), or leave their changes in place with --force"
    )


def _stop(layout: Layout) -> Iterator[Step]:
    present = [name for name in UNITS if layout.unit(name).exists()]
    yield Step(
        f"stop and disable {', '.join(present or UNITS)}",
        lambda: not present,
        lambda: account.run("systemctl", "--quiet", "disable", "--now", *present),
    )


def _remove_files(layout: Layout, *, purge: bool) -> Iterator[Step]:
    for path in layout.installed():
        yield Step(f"remove {path}", partial(_is_gone, path), path.unlink)
    folder = layout.config_folder
    if purge:
        yield Step(f"remove {folder} with its files", partial(_is_gone, folder), partial(shutil.rmtree, folder))
    elif steps.content(layout.config) == layout.sample:
        yield Step(f"remove {layout.config}, which was not changed", lambda: False, layout.config.unlink)
        yield Step(f"remove {folder}", lambda: any(path != layout.config for path in folder.iterdir()), folder.rmdir)


def _state_and_account(layout: Layout, *, purge: bool) -> Iterator[Step]:
    state, sockets = layout.state, layout.sockets
    yield Step("make systemd forget the units", lambda: False, lambda: account.run("systemctl", "daemon-reload"))
    yield Step(f"remove {sockets}", partial(_is_gone, sockets), partial(shutil.rmtree, sockets))
    if purge:
        yield Step(f"remove {state} with its files", partial(_is_gone, state), partial(shutil.rmtree, state))
    else:
        # The ids of user and group may be given to others later.
        config = layout.config
        yield Step(
            f"let only root read {config}",
            lambda: not config.exists() or config.stat().st_gid == 0,
            lambda: os.chown(config, 0, 0),
        )
        yield Step(f"give {state / 'api'} to root", lambda: _is_roots(state), lambda: _give_to_root(state))
    yield Step(f"remove the user and the group {ACCOUNT}", lambda: not account.is_own(), account.remove)


def _is_gone(path: Path) -> bool:
    return not path.exists()


def _is_roots(state: Path) -> bool:
    api = state / "api"
    return not api.exists() or api.stat().st_uid == 0


def _give_to_root(state: Path) -> None:
    lock = folders.lock(state)
    try:
        folders.prepare(state, pwd.getpwuid(0))
    finally:
        os.close(lock)
