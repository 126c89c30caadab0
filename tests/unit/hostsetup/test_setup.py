"""setup-host and remove-host on the files of an image; tests/lab/test_setup_host.py has a real host."""

import os
import shutil
import subprocess
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from support.values import make_entries, make_run

from pinner.hostsetup import setup
from pinner.hostsetup.layout import MARK, UNITS, Layout, packaged
from pinner.hostsetup.setup import StillApplied, remove_host, setup_host, still_applied
from pinner.model.errors import Invalid, PinnerError
from pinner.store.journal.journal import StoredJournal

pytestmark = pytest.mark.needs("root")


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "image", Path("/opt/pinner/bin"))


class Said(list[str]):
    """The lines that a command prints."""

    def __call__(self, text: str) -> None:
        self.append(text)


def files(layout: Layout) -> dict[str, str]:
    found = [path for path in layout.root.rglob("*") if path.is_file()]
    return {str(path.relative_to(layout.root)): path.read_text() for path in found}


def do(layout: Layout, *, dry_run: bool = False) -> Said:
    said = Said()
    setup_host(layout, said, dry_run=dry_run)
    return said


def undo(layout: Layout, *, dry_run: bool = False, purge: bool = False, force: bool = False) -> Said:
    said = Said()
    remove_host(layout, said, dry_run=dry_run, purge=purge, force=force)
    return said


def test_a_setup_writes_units_declarations_and_the_configuration(layout: Layout) -> None:
    do(layout)
    found = files(layout)
    assert {Path(name).name for name in found if "systemd" in name} == set(UNITS)
    assert found["etc/pinner/pinner.conf"] == packaged("pinner.conf.sample")
    assert layout.config.stat().st_mode & 0o777 == 0o600
    assert all(text.startswith(MARK) for name, text in found.items() if not name.startswith("etc/pinner/"))
    assert "ExecStart=/opt/pinner/bin/pinner serve --only api" in found["etc/systemd/system/pinner-api.service"]


def test_a_second_setup_changes_nothing(layout: Layout) -> None:
    do(layout)
    layout.config.write_text("[host]\nname = here\n")
    before = files(layout)
    assert all(line.startswith("nothing to do: ") for line in do(layout))
    assert files(layout) == before


def test_a_setup_updates_the_units_of_an_older_version(layout: Layout) -> None:
    do(layout)
    layout.unit("pinner-api.service").write_text(f"{MARK}[Unit]\n")
    assert f"done: write {layout.unit('pinner-api.service')}" in do(layout)
    assert "ExecStart" in layout.unit("pinner-api.service").read_text()


def test_a_dry_run_shows_the_steps_and_writes_nothing(layout: Layout) -> None:
    assert all(line.startswith("would write ") for line in do(layout, dry_run=True))
    assert not layout.root.exists()


@pytest.mark.parametrize("kind", ["a unit of somebody else", "a symlink", "a folder", "binary"])
def test_a_file_that_is_not_pinners_is_left_alone(layout: Layout, kind: str) -> None:
    unit = layout.unit("pinner-agent.service")
    unit.parent.mkdir(parents=True)
    match kind:
        case "a unit of somebody else":
            unit.write_text("[Service]\n")
        case "a symlink":
            unit.symlink_to("/dev/null")
        case "a folder":
            unit.mkdir()
        case "binary":
            unit.write_bytes(b"\xff\xfe")
    for command in (do, undo):
        with pytest.raises(Invalid, match=r"pinner-agent\.service.*move it away"):
            command(layout)
    assert os.path.lexists(unit)
    assert not layout.config.exists(), "nothing is made before all is checked"


@pytest.mark.parametrize("link", ["etc", "etc/systemd", "etc/pinner", "etc/pinner/pinner.conf"])
def test_a_symlink_of_an_image_does_not_lead_to_the_host(layout: Layout, tmp_path: Path, link: str) -> None:
    """An absolute symlink of an image means a path of that system, not of this one."""
    outside = tmp_path / "host"
    outside.mkdir()
    (outside / "pinner").mkdir()
    (outside / "pinner/pinner.conf").write_text("mine")
    there = layout.root / link
    there.parent.mkdir(parents=True)
    there.symlink_to(outside / "new.conf" if link.endswith(".conf") else outside)
    before = sorted(outside.rglob("*"))
    for call in (lambda: do(layout), lambda: undo(layout, purge=True)):
        with pytest.raises(Invalid, match="a symlink leads to"):
            call()
    assert sorted(outside.rglob("*")) == before


def test_an_image_that_another_user_can_change_is_refused(layout: Layout) -> None:
    layout.root.mkdir()
    os.chown(layout.root, 12345, 12345)
    for call in (lambda: do(layout), lambda: undo(layout)):
        with pytest.raises(Invalid, match="only root can write"):
            call()
    assert list(layout.root.iterdir()) == []


def test_a_removal_leaves_nothing_of_an_unchanged_setup(layout: Layout) -> None:
    do(layout)
    undo(layout)
    assert files(layout) == {}
    assert not layout.config_folder.exists()


def test_a_removal_keeps_a_changed_configuration_unless_it_purges(layout: Layout) -> None:
    do(layout)
    layout.config.write_text("[host]\nname = here\n")
    undo(layout)
    assert files(layout) == {"etc/pinner/pinner.conf": "[host]\nname = here\n"}
    undo(layout, purge=True)
    assert files(layout) == {}


def test_a_removal_keeps_other_files_beside_the_configuration(layout: Layout) -> None:
    do(layout)
    (layout.config_folder / "hook.conf").touch()
    undo(layout)
    assert files(layout) == {"etc/pinner/hook.conf": ""}


def test_a_dry_run_of_a_removal_removes_nothing(layout: Layout) -> None:
    do(layout)
    before = files(layout)
    assert f"would remove {layout.unit('pinner-api.socket')}" in undo(layout, dry_run=True)
    assert files(layout) == before


def test_a_removal_is_refused_while_a_run_is_applied(layout: Layout) -> None:
    do(layout)
    (layout.state / "agent").mkdir(parents=True)
    assert still_applied(layout.state) == ""
    with closing(StoredJournal(layout.state / "agent")) as journal:
        journal.begin(make_run("run-1"))
        with pytest.raises(StillApplied, match=r"run-1.*--force"):
            undo(layout)
        journal.intend(*(replace(entry, state="done") for entry in make_entries("run-1")))
        journal.end(make_run("run-1", state="applied"))
        with pytest.raises(StillApplied, match="pinner rollback"):
            undo(layout)
        assert layout.unit("pinner-agent.service").exists()
        journal.begin(make_run("run-2", kind="rollback", undoes="run-1"))
        journal.end(make_run("run-2", kind="rollback", undoes="run-1", state="rolled_back"))
    undo(layout)
    assert not layout.unit("pinner-agent.service").exists()


def test_a_removal_can_be_forced(layout: Layout) -> None:
    do(layout)
    (layout.state / "agent").mkdir(parents=True)
    with closing(StoredJournal(layout.state / "agent")) as journal:
        journal.begin(make_run("run-1"))
        journal.end(make_run("run-1", state="applied"))
    undo(layout, force=True)
    assert not layout.unit("pinner-agent.service").exists()


def test_a_host_without_systemd_and_an_environment_that_units_do_not_see_are_named(tmp_path: Path) -> None:
    if not Path("/run/systemd/system").exists():
        with pytest.raises(Invalid, match="systemd"):
            do(Layout())
    (tmp_path / "pinner").touch()
    with pytest.raises(Invalid, match=r"/tmp.*/opt/pinner"):
        setup._check_programs(Layout(Path("/"), tmp_path))


def test_a_configuration_that_the_units_cannot_have_is_named(tmp_path: Path) -> None:
    config = tmp_path / "pinner.conf"
    for line, option in (
        ("[api]\nuser = ann\n", "[api] user"),
        ("[agent]\nstate_dir = /srv\n", "[agent] state_dir"),
        ("[retention]\naudit_export = /var/lib/pinner/api/../audit\n", "[retention] audit_export"),
    ):
        config.write_text(line)
        with pytest.raises(Invalid) as refused:
            setup._check_config(config)
        assert refused.value.details["field"] == option


def test_user_and_group_are_made_and_removed_with_and_without_sysusers(monkeypatch, tmp_path: Path) -> None:
    """The account gets another name here, because a user pinner may exist."""
    name = f"pinner-tmp-{os.getpid()}-a"
    monkeypatch.setattr(setup, "ACCOUNT", name)
    declared = tmp_path / "pinner.conf"
    declared.write_text(packaged("sysusers.d/pinner.conf").replace("u pinner", f"u {name}"))
    find = shutil.which
    for lacking in ("nothing", "systemd-sysusers"):
        monkeypatch.setattr(
            shutil, "which", lambda program, lacking=lacking: None if program == lacking else find(program)
        )
        assert not setup.has_account()
        try:
            setup.create_account(declared)
            assert setup.has_account()
            assert setup.is_own_account()
            entry = setup.find_account()
            assert entry is not None
            assert 0 < entry.pw_uid < 1000
            assert entry.pw_shell == "/usr/sbin/nologin"
        finally:
            setup.remove_account()
        assert not setup.has_account()
        assert not setup.is_own_account()


def test_a_program_that_fails_is_shown_with_its_message() -> None:
    with pytest.raises(PinnerError, match=r"userdel .* failed: userdel: "):
        setup.run("userdel", "pinner-no-such-user")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="not installed: systemd")
def test_the_units_are_valid() -> None:
    """systemd-analyze does not need a running systemd; it complains that /usr/bin/pinner is not there."""
    folder = Path(__file__).parents[3] / "etc/pinner"
    units = [folder / name for name in UNITS]
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if "is not executable" not in line] == []


@pytest.mark.parametrize("link", ["etc", "etc/systemd", "etc/pinner", "etc/pinner/pinner.conf", "var/lib/pinner"])
def test_a_symlink_of_an_image_to_itself_is_refused(layout: Layout, link: str) -> None:
    (layout.root / link).parent.mkdir(parents=True)
    (layout.root / link).symlink_to(Path(link).name)
    for call in (lambda: do(layout), lambda: undo(layout)):
        with pytest.raises(Invalid, match="leads to itself"):
            call()


@pytest.mark.parametrize("link", ["etc", "etc/systemd", "etc/pinner", "var/lib/pinner"])
def test_a_symlink_that_leads_out_of_an_image_is_refused(layout: Layout, tmp_path: Path, link: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (layout.root / link).parent.mkdir(parents=True)
    (layout.root / link).symlink_to(outside)
    with pytest.raises(Invalid, match=f"a symlink leads to {outside}"):
        do(layout)
    with pytest.raises(Invalid, match=f"a symlink leads to {outside}"):
        remove_host(layout, Said(), dry_run=False, purge=True, force=True)
    assert list(outside.iterdir()) == []
