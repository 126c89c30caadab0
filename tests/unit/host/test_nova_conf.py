import pytest

from pinner.host import nova_conf
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Invalid
from pinner.model.nova import NovaConf, NovaSets, configured, cpus

FULL = """[DEFAULT]
my_set = 4-15,^8
notification_format = both
[compute]
cpu_dedicated_set = $my_set
cpu_shared_set = "0-3"
[notifications]
versioned_notifications_topics = versioned_notifications, pinner
[oslo_messaging_notifications]
driver = messagingv2
driver = log
"""


@pytest.fixture
def conf(tmp_path):
    def write(text: str, name: str = "nova.conf") -> NovaConf:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        found = nova_conf.read([tmp_path / "nova.conf"])
        assert found is not None
        return found

    return write


def test_all_options_of_a_file(conf, tmp_path):
    found = conf(FULL.replace("$my_set", "4-15,^8"))
    assert found == NovaConf(
        (str(tmp_path / "nova.conf"),),
        dedicated="4-15,^8",
        shared="0-3",
        format="both",
        topics=("versioned_notifications", "pinner"),
        drivers=("messagingv2", "log"),
    )
    assert found.sets() == NovaSets(CpuSet.parse("4-7,9-15"), CpuSet.parse("0-3"))


def test_an_empty_file_has_novas_defaults(conf):
    found = conf("")
    assert (found.format, found.topics, found.drivers) == ("unversioned", ("versioned_notifications",), ())
    assert found.sets() == NovaSets()


def test_the_d_folder_overrides_the_file_and_changes_are_read(conf):
    assert conf("[compute]\ncpu_dedicated_set = 1\n").dedicated == "1"
    assert conf("[compute]\ncpu_dedicated_set = 2-3\n").dedicated == "2-3"
    assert conf("[compute]\ncpu_dedicated_set = 4\n", "nova.conf.d/90.conf").dedicated == "4"
    assert conf("[compute]\ncpu_dedicated_set = 5-6\n", "nova.conf.d/90.conf").dedicated == "5-6"


def test_a_later_file_overrides_an_earlier_one(tmp_path):
    first, second = tmp_path / "nova.conf", tmp_path / "nova-compute.conf"
    first.write_text("[compute]\ncpu_dedicated_set = 1\ncpu_shared_set = 2\n")
    second.write_text("[compute]\ncpu_dedicated_set = 3\n")
    found = nova_conf.read([first, second])
    assert found is not None
    assert (found.dedicated, found.shared) == ("3", "2")


def test_deprecated_option_names_are_read(conf):
    found = conf("[DEFAULT]\nvcpu_pin_set = 2-5\nnotification_driver = messaging\n[compute]\ncpu_shared_set = 0\n")
    assert (found.pin_set, found.drivers) == ("2-5", ("messaging",))
    assert found.sets() == NovaSets(CpuSet(), CpuSet.parse("2-5"))


def test_environment_variables_are_ignored(conf, monkeypatch):
    monkeypatch.setenv("OS_COMPUTE__CPU_DEDICATED_SET", "7")
    assert conf("").dedicated == ""


@pytest.mark.parametrize("text", ["[compute\n", "cpu_dedicated_set 4\n", "[compute]\ncpu_dedicated_set = $nosuch\n"])
def test_a_file_that_does_not_parse_is_an_error(conf, text):
    found = conf(text)
    assert found.error
    with pytest.raises(Invalid, match=r"nova\.conf"):
        found.sets()


@pytest.mark.fault(42)
@pytest.mark.parametrize(
    "text", ["[DEFAULT]\nhunter2: ' x\nhunter2\n", " hunter2: 'y'\n", "hunter2 = 1\n", "[hunter2\n"]
)
def test_an_error_names_the_line_and_does_not_show_it(conf, text):
    """Nova's user could have put a symlink to a file of root in the place of nova.conf."""
    found = conf(text)
    assert ".conf:" in found.error
    assert "hunter2" not in found.error


def test_a_missing_file_is_an_error(tmp_path):
    found = nova_conf.read([tmp_path / "nova.conf"])
    assert found is not None
    assert "nova.conf" in found.error


def test_a_missing_default_file_is_a_host_without_nova(tmp_path, monkeypatch):
    monkeypatch.setattr(nova_conf, "DEFAULT", (tmp_path / "nova.conf",))
    assert nova_conf.read([tmp_path / "nova.conf"]) is None


@pytest.mark.parametrize("text", ["4-x", "7-4", "^4", "9000"])
def test_an_invalid_set_is_refused(text):
    with pytest.raises(Invalid, match="cpu_dedicated_set"):
        NovaConf((), dedicated=text).sets()


@pytest.mark.parametrize(("text", "found"), [("", ""), (" 4 - 7 ,, ^5-6 ", "4,7"), ("0-7,^3,8", "0-2,4-8")])
def test_novas_cpu_lists_are_parsed(text, found):
    assert str(cpus(text, "cpu_dedicated_set")) == found


def test_nova_conf_is_read_only_for_sets_that_pinner_does_not_configure():
    both = NovaSets(CpuSet.parse("1"), CpuSet.parse("2"))
    assert configured(both, NovaConf((), error="broken")) == both
    with pytest.raises(Invalid):
        configured(NovaSets(CpuSet.parse("1")), NovaConf((), error="broken"))
