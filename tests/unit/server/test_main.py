import grp
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.server.accounts import api_user

from pinner import conf, wiring
from pinner.model.errors import Invalid
from pinner.server import api_process, folders, main, privileges, supervisor
from pinner.server.sockets import ApiAddress


@pytest.mark.parametrize("user", ["root", "no-such-user", "nobody", "0", "65534", "-1", "4294967295", "4294967296"])
def test_an_unsuitable_api_user_is_refused_with_the_remedy(user: str) -> None:
    with pytest.raises(Invalid, match=rf"{user}.*pinner-manage setup-host"):
        privileges.unprivileged(user, "adm")


def test_a_number_is_a_user_without_an_account_in_the_apis_group() -> None:
    account = privileges.unprivileged(str(api_user().uid), str(api_user().gid))
    assert (account.pw_name, account.pw_uid, account.pw_gid) == (str(api_user().uid), api_user().uid, api_user().gid)


def test_a_user_without_an_account_gets_its_group_by_name() -> None:
    assert privileges.unprivileged(str(api_user().uid), "adm").pw_gid == grp.getgrnam("adm").gr_gid


@pytest.mark.parametrize("group", ["root", "0", "no-such-group", "4294967295"])
def test_a_user_without_an_account_gets_no_group_of_root(group: str) -> None:
    with pytest.raises(Invalid, match=rf"\[api\] group.*{group}"):
        privileges.unprivileged(str(api_user().uid), group)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives up root for the owner of a database")
def test_a_database_in_a_folder_of_roots_group_is_not_opened_for_a_user_without_an_account(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/pinner.sqlite"
    os.chown(tmp_path, api_user().uid, 0)
    with pytest.raises(Invalid, match=f"user id {api_user().uid}"):
        privileges.other_owner(url)
    os.chown(tmp_path, api_user().uid, api_user().gid)
    assert privileges.other_owner(url) == privileges.numbered(api_user().uid, api_user().gid)


@pytest.mark.parametrize(("uid", "name"), [(0, "toor"), (65534, "nfsnobody"), (99, "nobody")])
def test_root_and_nobody_are_refused_by_name_and_by_id(uid: int, name: str) -> None:
    assert "pinner-manage setup-host" in privileges.unsuitable(uid, name)


def test_the_api_runs_as_pinner_unless_another_user_is_configured() -> None:
    assert (conf.load([]).api.user, conf.load([]).api.group) == ("pinner", "pinner")


@pytest.mark.needs("root")
def test_giving_up_root_is_final() -> None:
    account = privileges.unprivileged(str(api_user().uid), str(api_user().gid))
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([0, 4])  # root of a service, for instance, has none
        privileges.drop(account)
        try:
            os.setuid(0)
        except PermissionError:
            os.write(writing, f"{os.getresuid()} {os.getresgid()} {os.getgroups()}".encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    uid, gid = account.pw_uid, account.pw_gid
    assert os.read(reading, 100).decode() == f"{(uid, uid, uid)} {(gid, gid, gid)} []"
    os.close(reading)


def test_test_libraries_are_not_loaded() -> None:
    """They cost time at each start, and some of them change the whole process."""
    code = "import sys; from pinner.server import main; import pinner.api.app, pinner.api.server; print(*sys.modules)"
    asked = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = {name.partition(".")[0] for name in asked.stdout.split()}
    assert "apiflask" in loaded
    assert loaded.isdisjoint({"pytest", "eventlet", "hypothesis"})


@pytest.mark.needs("root")
def test_an_api_that_ends_before_the_agent_listens_gives_its_exit_status(tmp_path: Path, monkeypatch) -> None:
    """The pipe to the API is broken then, which is not an error of its own."""
    gone = os.pipe()

    def slow_agent(*_args: object, **_options: object) -> SimpleNamespace:
        os.close(gone[1])
        assert os.read(gone[0], 1) == b"", "the API process has ended, and its end of the pipe is closed"
        return SimpleNamespace(close=lambda: None)

    file = tmp_path / "pinner.conf"
    file.write_text(api_user().config)
    for module in (wiring, wiring.settings):
        monkeypatch.setattr(module, "state_dir", lambda _config: tmp_path)
    monkeypatch.setattr(api_process, "run", lambda *_: 2)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)  # given back at the end
    monkeypatch.setattr(supervisor, "_asked_to_end", lambda: os.pipe()[0])
    monkeypatch.setattr(wiring, "local_agent", slow_agent)
    with pytest.raises(SystemExit) as ended:
        main._serve_apart(conf.load([file]), ApiAddress(tmp_path / "api.sock", "root", "127.0.0.1", 0))
    assert ended.value.code == 2


def test_a_state_folder_that_cannot_be_made_is_named() -> None:
    with pytest.raises(Invalid, match=r"\[agent\] state_dir: '/dev/null' is not valid: a writable folder"):
        folders.lock(Path("/dev/null"))


def test_a_user_without_a_home_is_asked_for_a_state_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(Invalid, match="no home folder"):
        wiring.state_dir(conf.load([]))


@pytest.mark.fault(54)
def test_a_state_folder_has_one_server(tmp_path: Path) -> None:
    """A second server would take the first one's socket away, even if it ends at once because its port is in use."""
    lock = folders.lock(tmp_path / "state")
    with pytest.raises(Invalid, match="no other running `pinner serve`") as refused:
        folders.lock(tmp_path / "state")
    assert refused.value.details["field"] == "[agent] state_dir"
    assert f"process {os.getpid()} does" in str(refused.value)
    os.close(lock)
    os.close(folders.lock(tmp_path / "state"))


@pytest.mark.fault(54)
def test_the_apis_part_has_one_server_too(tmp_path: Path) -> None:
    assert folders.lock_api(tmp_path) is None, "the agent has not made it yet"
    (tmp_path / "api").mkdir()
    lock = folders.lock_api(tmp_path)
    with pytest.raises(Invalid, match=f"process {os.getpid()} does"):
        folders.lock_api(tmp_path)
    threading.Timer(0.3, os.close, [lock]).start()
    again = folders.lock_api(tmp_path, wait_seconds=10)
    assert again is not None, "an API that ends a moment later is waited for"
    os.close(again)


@pytest.mark.fault(54)
def test_a_lock_is_not_taken_through_a_symlink(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "api").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Invalid, match=r"\[agent\] state_dir: .* not a link to another place"):
        folders.lock_api(tmp_path)
    (tmp_path / "state").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Invalid, match=r"\[agent\] state_dir: .* not a link to another place"):
        folders.lock(tmp_path / "state")


@pytest.mark.parametrize("file", ["/nowhere/pinner.log", "/"])
def test_a_log_file_that_cannot_be_written_is_named(tmp_path: Path, file: str) -> None:
    config = tmp_path / "pinner.conf"
    config.write_text(f"[DEFAULT]\nlog_file = {file}\n")
    with pytest.raises(Invalid, match=r"\[DEFAULT\] log_file"):
        main.serve([config], None, None)
