"""Sets up a host: user, group, folders, configuration and systemd units."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from pinner import wiring
from pinner.hostsetup import account, steps
from pinner.hostsetup.layout import ACCOUNT, CONFIG_MODE, ENABLED, Layout
from pinner.hostsetup.steps import Step
from pinner.model.errors import Invalid
from pinner.owners import require_own
from pinner.server import folders, installation

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
    steps.execute([_account(layout)], say, dry_run=dry_run)
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
    """Raises Invalid where a path leads out of the image, or another user can change it."""
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
    """Raises Invalid for a configuration that the units cannot have."""
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
    user = account.find()
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


def _account(layout: Layout) -> Step:
    return Step(f"create the user and the group {ACCOUNT}", account.exists, lambda: account.create(layout.sysusers))


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
    yield Step("make systemd read the units", lambda: False, lambda: account.run("systemctl", "daemon-reload"))
    yield Step(
        f"enable {', '.join(ENABLED)}", _are_enabled, lambda: account.run("systemctl", "--quiet", "enable", *ENABLED)
    )


def _are_enabled() -> bool:
    answer = subprocess.run(["systemctl", "--quiet", "is-enabled", *ENABLED], check=False, capture_output=True)
    return answer.returncode == 0


def _is_readable_by_group(config: Path) -> bool:
    user = account.find()
    status = config.stat() if config.exists() else None
    return bool(user and status and status.st_gid == user.pw_gid and status.st_mode & 0o777 == CONFIG_MODE)


def _let_group_read(config: Path) -> None:
    shutil.chown(config, "root", ACCOUNT)
    config.chmod(CONFIG_MODE)


def _has_state(state: Path) -> bool:
    user = account.find()
    api = state / "api"
    return bool(user and (state / "agent").is_dir() and api.is_dir() and api.stat().st_uid == user.pw_uid)


def _make_state(state: Path) -> None:
    user = account.find()
    assert user is not None, "the step before has made it"
    lock = folders.lock(state)
    try:
        folders.prepare(state, user)
    finally:
        os.close(lock)
