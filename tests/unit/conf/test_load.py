import pytest

from pinner.conf import MESSAGING, load
from pinner.model.errors import Invalid


def test_values_come_from_the_file_or_the_defaults(tmp_path):
    file = tmp_path / "pinner.conf"
    file.write_text("[api]\nport = 9000\n")
    conf = load([file])
    assert (conf.api.port, conf.api.bind, conf.host.sample_seconds) == (9000, "", 5.0)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[api]\nport = many\n", "port"),
        ("[api]\nport = 70000\n", "port"),
        ("[host]\nsample_seconds = -1\n", "sample_seconds"),
        ("no section\n", "at .*pinner.conf:1"),
    ],
)
def test_an_error_names_the_file_and_the_option(tmp_path, text, why):
    file = tmp_path / "pinner.conf"
    file.write_text(text)
    with pytest.raises(Invalid, match=why) as caught:
        load([file])
    assert caught.value.details["value"] == str(file)


def test_a_missing_file_is_invalid(tmp_path):
    with pytest.raises(Invalid, match="nowhere"):
        load([tmp_path / "nowhere.conf"])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[api]\nport = many\n", "[api] port is 'many', not a whole number from 0 to 65535"),
        ("[api]\ntls_client_required = ja\n", "[api] tls_client_required is 'ja', not true or false"),
        ("[API]\nport = 70000\n", "[api] port is '70000', not a whole number from 0 to 65535"),
        ("[agent]\nrecover = sideways\n", "[agent] recover is 'sideways', not one of back, forward"),
        ("[host]\nsample_seconds = nan\n", "[host] sample_seconds is 'nan', not a number from 0 to 300"),
        ("[policy]\nresync_seconds = inf\n", "[policy] resync_seconds is 'inf', not a number from 1 to 86400"),
        ("[retention]\nruns_days = 3000000\n", "runs_days is '3000000', not a whole number from 1 to 36500"),
        ("[retention]\naudit_days = 99999999999\n", "audit_days is '99999999999', not a whole number from 1 to 36500"),
        ("[policy]\nmigration_seconds = 99999999999999999\n", "[policy] migration_seconds is '99999999999999999'"),
        ("[api]\ntls_client_roles = abc\n", "[api] tls_client_roles is 'abc', not pairs NAME:VALUE"),
        ("[api]\nprot = 1\n", "[api] has no option prot; did you mean port?"),
        ("[apii]\nport = 1\n", "there is no section [apii]; did you mean api?"),
        ("[agent]\nbind = ::1\n", "[agent] has no option bind; it belongs to [api]"),
        ("[DEFAULT]\nstate_dir = /srv\n", "[DEFAULT] has no option state_dir; it belongs to [agent]"),
        ("[agent]\nstate_dir = state\n", "[agent] state_dir is 'state', not an absolute path"),
        ("[agent]\nsocket = agent.sock\n", "[agent] socket is 'agent.sock', not an absolute path"),
        ("[api]\nsocket = ~/api.sock\n", "[api] socket is '~/api.sock', not an absolute path"),
        ("[agent]\npinged_guests = web\n", "[agent] pinged_guests is 'web', not valid: 'web' is not GUEST=ADDRESS"),
        ("[agent]\npinged_guests = web=1.2.3\n", "'1.2.3' does not appear to be an IPv4 or IPv6 address"),
        ("[host]\nname = ../../x\n", "[host] name is '../../x', not a name of at most 255 characters, without / and"),
        ("[host]\nname = ..\n", "[host] name is '..', not a name"),
        ("[host]\nname = a b\n", "[host] name is 'a b', not a name"),
        ("[quux]\nx = 1\n", "there is no section [quux]; etc/pinner/pinner.conf.sample lists all"),
        ("[api]\nport = $nothing\n", "nothing"),
    ],
)
def test_a_wrong_name_or_value_is_told_in_plain_words(tmp_path, text, why):
    file = tmp_path / "pinner.conf"
    file.write_text(text)
    with pytest.raises(Invalid) as caught:
        load([file])
    assert why in str(caught.value)
    assert "LocationInfo" not in str(caught.value)


def test_names_of_libraries_are_known(tmp_path):
    file = tmp_path / "pinner.conf"
    file.write_text("[DEFAULT]\ndebug = true\nrpc_response_timeout = 9\n[oslo_messaging_rabbit]\nssl = true\n")
    assert load([file]).debug


def test_the_messaging_options_are_those_of_the_library():
    pytest.importorskip("oslo_messaging")
    from oslo_messaging import opts

    assert {option.dest for group, options in opts.list_opts() if group is None for option in options} == MESSAGING


def test_a_typing_error_in_a_folder_of_files_is_found(tmp_path, monkeypatch):
    folder = tmp_path / ".pinner/pinner.conf.d"
    folder.mkdir(parents=True)
    (folder / "1.conf").write_text("[libvirt]\nurl = qemu:///system\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(Invalid, match=r"1\.conf.*\[libvirt\] has no option url; did you mean uri\?"):
        load()


@pytest.mark.parametrize("content", [None, b"\xff\xfe[api]"], ids=["folder", "no text"])
def test_what_is_no_text_file_is_invalid(tmp_path, content):
    file = tmp_path / "pinner.conf"
    file.write_bytes(content) if content else file.mkdir()
    with pytest.raises(Invalid, match=r"pinner\.conf"):
        load([file])


def test_a_secret_value_is_not_shown(tmp_path, monkeypatch):
    file = tmp_path / "pinner.conf"
    file.write_text("[database]\nconection = mysql://pinner:pass@db/pinner\n")
    with pytest.raises(Invalid, match="did you mean connection") as caught:
        load([file])
    assert "pass" not in str(caught.value)


def test_a_wrong_value_of_the_environment_is_told(monkeypatch):
    monkeypatch.setenv("OS_API__PORT", "many")
    with pytest.raises(Invalid, match=r"OS_API__PORT.*\[api\] port is 'many'"):
        load([])
