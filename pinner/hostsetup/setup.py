"""Sets up a host (user, group, folders, configuration and systemd units), and removes all that again."""

import grp
import os
import pwd
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

from pinner import wiring
from pinner.hostsetup import steps
from pinner.hostsetup.layout import ACCOUNT, CONFIG_MODE, ENABLED, UNITS, Layout
from pinner.hostsetup.steps import Step
from pinner.model.errors import Invalid, PinnerError
from pinner.owners import require_own
from pinner.server import folders, installation
from pinner.store.journal.journal import StoredJournal

_HIDDEN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")  # noqa: S108 - the units have other folders there
"""The units do not see them (ProtectHome=, PrivateTmp=)."""


def setup_host(layout: Layout, say: Callable[[str], None], *, dry_run: bool) -> None:
    """A second call changes nothing. Raises Invalid where the host, a file in the way or the installation does not
    allow it, PinnerError where a program fails."""
    check_host(layout)
    _check_programs(layout)
    for path in layout.installed():
        steps.check_is_pinners(path)
    if layout.config.exists():
        _check_config(layout.config)
    steps.execute(_files(layout), say, dry_run=dry_run)
    if layout.is_image:
        return
    account = Step(f"create the user and the group {ACCOUNT}", has_account, lambda: create_account(layout.sysusers))
    steps.execute([account], say, dry_run=dry_run)
    if not dry_run:
        _check_readable()
    steps.execute(_folders(layout), say, dry_run=dry_run)
    steps.execute(_systemd(), say, dry_run=dry_run)
    if not dry_run:
        say("start pinner with: systemctl start pinner-agent pinner-api")


def check_host(layout: Layout) -> None:
    """Raises Invalid unless root runs this on a host with systemd, or for a safe image."""
    if os.geteuid() != 0:
        raise Invalid("user", str(os.geteuid()), "root: call it with sudo")
    if not layout.is_image and not Path("/run/systemd/system").is_dir():
        raise Invalid("host", os.uname().nodename, "a host that systemd has started; elsewhere use `pinner serve`")
    if layout.is_image:
        _check_image(layout)


def _check_image(layout: Layout) -> None:
    require_own(layout.root, "--root")
    inside = steps.real(layout.root)
    files = [*layout.installed(), layout.config, layout.state / "agent/journal.sqlite", layout.sockets / "agent.sock"]
    for path in (*(path.parent for path in files), layout.config):
        steps.check_is_inside(path, inside)
    for path in files:
        require_own(path.parent, "--root")


def _check_programs(layout: Layout) -> None:
    if layout.is_image:
        return
    if not (layout.programs / "pinner").exists():
        raise Invalid("installation", str(layout.programs), "the bin folder of a virtual environment that has pinner")
    if hidden := next((folder for folder in _HIDDEN if layout.programs.is_relative_to(folder)), ""):
        raise Invalid(
            "installation",
            str(layout.programs.parent),
            f"a virtual environment outside {hidden}, which the units do not see; install pinner below /opt/pinner",
        )


def _check_config(path: Path) -> None:
    config = wiring.configuration([path])
    for option, value, needed in (
        ("[api] user", config.api.user, ACCOUNT),
        ("[agent] state_dir", config.agent.state_dir or str(wiring.STATE_OF_ROOT), str(wiring.STATE_OF_ROOT)),
    ):
        if value != needed:
            raise Invalid(option, value, f"{needed}, as in pinner's systemd units; change {path}")
    exports, writable = config.retention.audit_export, wiring.STATE_OF_ROOT / "api"
    if exports and not Path(os.path.normpath(exports)).is_relative_to(writable):
        needed = f"a folder below {writable}, the only one that pinner's systemd unit lets the API write"
        raise Invalid("[retention] audit_export", exports, f"{needed}; change {path}")


def _check_readable() -> None:
    user = find_account()
    if user and (closed := installation.closed_to(user)):
        raise Invalid(
            "installation",
            str(closed[0]),
            f"a folder that the user {ACCOUNT} can read; install pinner below /opt/pinner, with umask 022",
        )


def _files(layout: Layout) -> Iterator[Step]:
    for path, text in layout.installed().items():
        yield Step(f"write {path}", partial(_has_text, path, text), partial(steps.write, path, text))
    yield Step(
        f"write {layout.config} from the sample",
        layout.config.exists,
        lambda: steps.write(layout.config, layout.sample, 0o600),
    )


def _has_text(path: Path, text: str) -> bool:
    return steps.content(path) == text


def _folders(layout: Layout) -> Iterator[Step]:
    yield Step(
        f"let the group {ACCOUNT} read {layout.config}",
        lambda: _is_readable_by_group(layout.config),
        lambda: _let_group_read(layout.config),
    )
    yield Step(f"create {layout.sockets}", layout.sockets.is_dir, lambda: layout.sockets.mkdir(mode=0o755))
    yield Step(
        f"create {layout.state} with the parts agent (root) and api ({ACCOUNT})",
        lambda: _has_state(layout.state),
        lambda: _make_state(layout.state),
    )


def _systemd() -> Iterator[Step]:
    yield Step("make systemd read the units", lambda: False, lambda: run("systemctl", "daemon-reload"))
    yield Step(f"enable {', '.join(ENABLED)}", _are_enabled, lambda: run("systemctl", "--quiet", "enable", *ENABLED))


def _are_enabled() -> bool:
    answer = subprocess.run(["systemctl", "--quiet", "is-enabled", *ENABLED], check=False, capture_output=True)
    return answer.returncode == 0


def _is_readable_by_group(config: Path) -> bool:
    user = find_account()
    status = config.stat() if config.exists() else None
    return bool(user and status and status.st_gid == user.pw_gid and status.st_mode & 0o777 == CONFIG_MODE)


def _let_group_read(config: Path) -> None:
    shutil.chown(config, "root", ACCOUNT)
    config.chmod(CONFIG_MODE)


def _has_state(state: Path) -> bool:
    user = find_account()
    api = state / "api"
    return bool(user and (state / "agent").is_dir() and api.is_dir() and api.stat().st_uid == user.pw_uid)


def _make_state(state: Path) -> None:
    user = find_account()
    assert user is not None, "the step before has made it"
    lock = folders.lock(state)
    try:
        folders.prepare(state, user)
    finally:
        os.close(lock)


_COMMENT = "pinner API"
"""As in sysusers.d/pinner.conf; remove-host removes no user with another one."""


def has_account() -> bool:
    return find_account() is not None and _has_group()


def find_account() -> pwd.struct_passwd | None:
    with suppress(KeyError):
        return pwd.getpwnam(ACCOUNT)
    return None


def is_own_account() -> bool:
    """Whether setup-host made the user."""
    user = find_account()
    return user is not None and user.pw_gecos.split(",")[0] == _COMMENT


def create_account(sysusers: Path) -> None:
    """``sysusers`` is a sysusers.d file. Raises PinnerError."""
    if program := shutil.which("systemd-sysusers"):
        run(program, str(sysusers))
        return
    if not _has_group():
        run("groupadd", "--system", ACCOUNT)
    if find_account() is None:
        run("useradd", "--system", "--gid", ACCOUNT, "--no-create-home", "--home-dir", "/",
            "--shell", "/usr/sbin/nologin", "--comment", _COMMENT, ACCOUNT)  # fmt: skip


def remove_account() -> None:
    if find_account() is not None:
        run("userdel", ACCOUNT)
    if _has_group():
        run("groupdel", ACCOUNT)


def run(*command: str) -> None:
    """Raises PinnerError with the program's error message."""
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        why = (getattr(error, "stderr", "") or str(error)).strip()
        raise PinnerError(f"{' '.join(command)} failed: {why}") from None


def _has_group() -> bool:
    with suppress(KeyError):
        return bool(grp.getgrnam(ACCOUNT))
    return False


class StillApplied(PinnerError):
    code = "still_applied"


def remove_host(layout: Layout, say: Callable[[str], None], *, dry_run: bool, purge: bool, force: bool) -> None:
    """Without ``purge`` state and changed configuration stay. Raises StillApplied without ``force``, PinnerError."""
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
    """Why pinner must not be removed yet, by the agent's journal."""
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
        lambda: run("systemctl", "--quiet", "disable", "--now", *present),
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
    yield Step("make systemd forget the units", lambda: False, lambda: run("systemctl", "daemon-reload"))
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
    yield Step(f"remove the user and the group {ACCOUNT}", lambda: not is_own_account(), remove_account)


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
