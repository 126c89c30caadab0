import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from oslo_config import cfg, types

from pinner import codec
from pinner.host.nova import nova_conf, nova_options, nova_process
from pinner.host.nova.nova_process import Started
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Invalid
from pinner.model.guest.nova import NovaConf, NovaSets, configured, cpus

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
        source="nova_conf of pinner.conf",
    )
    assert found.sets() == NovaSets(CpuSet.parse("4-7,9-15"), CpuSet.parse("0-3"))


POWER = "[libvirt]\ncpu_power_management = true\n"


@pytest.mark.parametrize(
    ("text", "power"),
    [
        ("", (False, "cpu_state", "performance")),
        ("[libvirt]\ncpu_power_management_strategy = governor\n", (False, "cpu_state", "performance")),
        (POWER, (True, "cpu_state", "performance")),
        (POWER + "cpu_power_management_strategy = governor\n", (True, "governor", "performance")),
        (
            POWER + "cpu_power_management_strategy = governor\ncpu_power_governor_high = ondemand\n",
            (True, "governor", "ondemand"),
        ),
    ],
)
def test_the_options_of_power_management(conf, text, power):
    found = conf(text)
    assert (found.power_management, found.power_strategy, found.governor_high) == power
    assert (found.switches_cpus_off, found.sets_governors) == (
        power[0] and power[1] == "cpu_state",
        power[0] and power[1] == "governor",
    )


def test_a_wrong_strategy_is_an_error_where_nova_reads_it(conf):
    wrong = "cpu_power_management_strategy = off\n"
    assert "cpu_power_management_strategy" in conf(POWER + wrong).error
    assert conf("[libvirt]\n" + wrong).error == ""


@pytest.mark.parametrize("option", ["cpu_power_governor_high", "cpu_power_governor_low"])
def test_a_governor_that_names_no_option_is_an_error_where_nova_reads_it(conf, option):
    wrong = f"{option} = $no_such_option\n"
    assert "no_such_option" in conf(POWER + "cpu_power_management_strategy = governor\n" + wrong).error
    assert conf(POWER + wrong).error == ""


def test_an_empty_file_has_novas_defaults(conf):
    found = conf("")
    assert (found.format, found.topics, found.drivers) == ("unversioned", ("versioned_notifications",), ())
    assert found.sets() == NovaSets()


OPTIONS = [(group, option.name) for group, options in nova_options._OPTIONS.items() for option in options]


@pytest.mark.parametrize(("group", "option"), OPTIONS)
@pytest.mark.parametrize("value", ["", '""', "' '", "None"])
def test_an_option_without_a_value_can_be_sent_to_the_service(conf, group, option, value):
    """oslo.config reads an empty number as None."""
    found = conf(f"[{group or 'DEFAULT'}]\n{option} = {value}\n")
    assert codec.load(NovaConf, codec.dump(found)) == found


@pytest.mark.parametrize(("group", "option"), OPTIONS)
def test_a_variable_that_is_no_text_can_be_sent_to_the_service(group, option, tmp_path):
    """Nova's user chooses the environment of nova-compute: no snapshot of the host was possible."""
    power = {"OS_LIBVIRT__CPU_POWER_MANAGEMENT": "true", "OS_LIBVIRT__CPU_POWER_MANAGEMENT_STRATEGY": "governor"}
    variables = power | {f"OS_{group or 'DEFAULT'}__{option}".upper(): os.fsdecode(b"a\xff")}
    with nova_process.opened(str(tmp_path)) as root:
        found = nova_conf._conf(Started(environment=tuple(variables.items())), root, "nova-compute")
    assert codec.load(NovaConf, codec.dump(found)) == found


def test_a_folder_is_read_in_the_order_of_its_names_and_changes_are_read(tmp_path):
    folder = tmp_path / "nova.conf.d"
    folder.mkdir()
    (tmp_path / "nova.conf").write_text("[compute]\ncpu_dedicated_set = 1\n")

    def dedicated() -> str:
        return nova_conf.read([tmp_path / "nova.conf", folder]).dedicated

    assert dedicated() == "1"
    (folder / "50.conf").write_text("[compute]\ncpu_dedicated_set = 2\n")
    (folder / "40.conf").write_text("[compute]\ncpu_dedicated_set = 3\n")
    (folder / ".99.conf").write_text("[compute]\ncpu_dedicated_set = 4\n")
    (folder / "99.txt").write_text("[compute]\ncpu_dedicated_set = 5\n")
    assert dedicated() == "2"
    (folder / "50.conf").write_text("[compute]\ncpu_dedicated_set = 6\n")
    assert dedicated() == "6"
    assert nova_conf.read([folder, tmp_path / "nova.conf"]).dedicated == "1"


def test_a_later_file_overrides_an_earlier_one(tmp_path):
    first, second = tmp_path / "nova.conf", tmp_path / "nova-compute.conf"
    first.write_text("[compute]\ncpu_dedicated_set = 1\ncpu_shared_set = 2\n")
    second.write_text("[compute]\ncpu_dedicated_set = 3\n")
    found = nova_conf.read([first, second])
    assert found is not None
    assert (found.dedicated, found.shared) == ("3", "2")


def test_a_folder_that_nova_would_take_for_a_pattern_is_refused(tmp_path):
    for name, cpu in (("d[1]", 3), ("d1", 9)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.conf").write_text(f"[compute]\ncpu_dedicated_set = {cpu}\n")
    assert nova_conf.read([tmp_path / "d1"]).dedicated == "9"
    with pytest.raises(Invalid, match=r"d\[1\].*pattern"):
        nova_conf.read([tmp_path / "d[1]"]).sets()


def test_a_default_folder_that_nova_would_take_for_a_pattern_is_refused(tmp_path):
    """Nova's own glob would read another folder, or none."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text("nova:x:64055:64055::/home[1]:/bin/false\n")
    (tmp_path / "etc/nova.conf").write_text("[compute]\ncpu_dedicated_set = 3\n")
    (tmp_path / "home[1]").mkdir()
    named = [Path("/etc/nova.conf")]
    assert nova_conf.read(named, root=tmp_path).dedicated == "3"
    (tmp_path / "home[1]/nova.conf.d").mkdir()
    with pytest.raises(Invalid, match=r"home\[1\].*pattern"):
        nova_conf.read(named, root=tmp_path).sets()


def test_deprecated_option_names_are_read(conf):
    found = conf("[DEFAULT]\nvcpu_pin_set = 2-5\nnotification_driver = messaging\n[compute]\ncpu_shared_set = 0\n")
    assert (found.pin_set, found.drivers, found.old_drivers) == ("2-5", ("messaging",), ("messaging",))
    assert found.sets() == NovaSets(CpuSet(), CpuSet.parse("2-5"))


def test_the_old_name_of_the_driver_is_told_from_the_new_one(conf):
    new = "[oslo_messaging_notifications]\ndriver = messagingv2\n"
    assert conf(new).old_drivers == ()
    both = conf(f"[DEFAULT]\nnotification_driver = log\n{new}")
    assert (sorted(both.drivers), both.old_drivers) == (["log", "messagingv2"], ("log",))


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


def doubling(count: int, last: str) -> str:
    """Options that each name the next one twice."""
    sections = nova_options._others().items()
    texts = [(name, each.name) for name, options in sections for each in options if each.type == types.String()]
    names = [(section, name) for section, name in texts if section != "DEFAULT"][: count + 1]
    values = [f"${{{section}.{name}}}" * 2 for section, name in names[1:]] + [last]
    lines = [f"[{section}]\n{name} = {value}" for (section, name), value in zip(names, values, strict=True)]
    return "\n".join([*lines, "[compute]", f"cpu_shared_set = ${'.'.join(names[0])}"])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (doubling(40, "0"), "more than 1000 values"),
        (doubling(40, ""), "more than 1000 values"),
        ("[compute]\ncpu_shared_set = " + "0," * 400_000, "more than 65536 characters"),
        ("[notifications]\nversioned_notifications_topics = " + "a," * 400_000, "more than 65536 characters"),
        ("[oslo_messaging_notifications]\n" + "driver = log\n" * 2_000, "more than 1000 values"),
    ],
    ids=["doubled", "doubled and empty", "long", "long list", "many"],
)
def test_values_that_would_take_for_ever_are_refused(conf, text, why):
    """Nova's user writes them, and pinner's agent reads them as root before each plan."""
    begin = time.process_time()
    assert why in conf(text).error
    assert time.process_time() - begin < 5.0


def test_the_files_are_bounded_in_number_and_in_size(conf, tmp_path):
    conf("[compute]\ncpu_shared_set = 0-3\n")
    assert "at most 200 files" in nova_conf.read([tmp_path / "nova.conf"] * 300).error
    assert "at most 1000 words" in nova_conf.read([tmp_path / "nova.conf"] * 2_000).error
    (tmp_path / "nova.conf").write_text("#" * 1_000_000)
    assert "4194304 bytes at most" in nova_conf.read([tmp_path / "nova.conf"] * 5).error


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("$filter_scheduler.enabled_filters", "0-3,['4']"),
        ("$cpu_allocation_ratio", "0-3,4.0"),
        ("$debug", "0-3,True"),
        ("$quota.cores", "0-3,7"),
        ("$pci.alias", "0-3,[]"),
        ("$reserved_huge_pages", "0-3,"),
        ("$ram_allocation_ratio", "0-3,"),
        ("$image_cache.subdirectory_name", "0-3,5"),
    ],
)
def test_an_option_that_another_names_has_the_text_of_its_typed_value(conf, option, text):
    values = "cpu_allocation_ratio = 4\ndebug = 1\nquota_cores = 07\nimage_cache_subdirectory_name = 5"
    sections = f"[DEFAULT]\n{values}\n[filter_scheduler]\nenabled_filters = 4"
    assert conf(f"{sections}\n[compute]\ncpu_shared_set = 0-3,{option}").shared == text


@pytest.mark.parametrize(
    ("line", "option", "why"),
    [
        ("debug = maybe", "$debug", "Unexpected boolean value 'maybe'"),
        ("cpu_allocation_ratio = -1", "$cpu_allocation_ratio", "greater than or equal to 0"),
        ("max_concurrent_builds = 4.0", "$max_concurrent_builds", "invalid literal for int()"),
        ("reserved_huge_pages = 4", "$reserved_huge_pages", "NAME:VALUE"),
    ],
)
def test_an_option_with_a_wrong_value_cannot_be_named(conf, line, option, why):
    assert conf(f"[DEFAULT]\n{line}\n[compute]\ncpu_shared_set = 0-3").shared == "0-3"
    assert why in conf(f"[DEFAULT]\n{line}\n[compute]\ncpu_shared_set = 0-3,{option}").error


@pytest.mark.parametrize("count", ["9" * 400, "9" * 5000, "2147483648", "-1"])
def test_a_number_of_reserved_cpus_that_placement_refuses_is_an_error(conf, count):
    """No snapshot of the host could be read with a number of 400 digits."""
    error = conf(f"[DEFAULT]\nreserved_host_cpus = {count}").error
    assert "reserved_host_cpus" in error
    assert len(error) < 500


def test_the_options_that_pinner_reads_have_novas_types():
    for section, options in nova_options._OPTIONS.items():
        novas = {option.name: option for option in nova_options._others()[section or "DEFAULT"]}
        for option in options:
            if option.name != "notification_driver":
                nova = novas[option.name]
                assert (option.type, option.multi) == (nova.type, nova.multi), option.name
                assert (option.default or None) == (nova.default or None), option.name


def test_a_missing_file_is_an_error(tmp_path):
    found = nova_conf.read([tmp_path / "nova.conf"])
    assert found is not None
    assert "nova.conf" in found.error


@pytest.mark.parametrize("name", ["n" * 300, "/n" * 3000, "nova.conf/nova.conf", "a\0b"])
def test_a_path_that_the_kernel_refuses_is_an_error(tmp_path, name):
    (tmp_path / "nova.conf").write_text("")
    found = nova_conf.read([Path(f"{tmp_path}/{name}")])
    assert found.error
    with pytest.raises(Invalid):
        found.sets()


def test_a_host_without_any_configuration_of_nova_has_none(tmp_path):
    found = nova_conf.read(root=tmp_path, proc=tmp_path)
    assert found == NovaConf((), is_missing=True)
    assert found.sets() == NovaSets()


@pytest.mark.parametrize(
    "text", ["4-x", "7-4", "^4", "9000", "4 5", "0-31:2/8", "1-2-3", "-3", "4-", "^", "^^4", ",", " ", "4;5"]
)
def test_an_invalid_set_is_refused(text):
    with pytest.raises(Invalid, match="cpu_dedicated_set"):
        NovaConf((), dedicated=text).sets()


@pytest.mark.parametrize(
    ("text", "found"),
    [("", ""), (" 4 - 7 ,, ^5-6 ", "4,7"), ("0-7,^3,8", "0-2,4-8"), ("0-3,\n4", "0-4"), ("^ 3,1-4", "1-2,4")],
)
def test_novas_cpu_lists_are_parsed(text, found):
    assert str(cpus(text, "cpu_dedicated_set")) == found


def test_nova_conf_is_read_only_for_sets_that_pinner_does_not_configure():
    both = NovaSets(CpuSet.parse("1"), CpuSet.parse("2"))
    assert configured(both, NovaConf((), error="broken")) == both
    with pytest.raises(Invalid):
        configured(NovaSets(CpuSet.parse("1")), NovaConf((), error="broken"))


def test_a_missing_configuration_is_refused_only_for_hosts_with_guests_of_nova():
    missing, both = NovaConf((), is_missing=True), NovaSets(CpuSet.parse("1"), CpuSet.parse("2"))
    assert configured(NovaSets(), missing) == NovaSets()
    assert configured(both, missing, ["g1"]) == both
    assert configured(NovaSets(), None, ["g1"]) == NovaSets()
    with pytest.raises(Invalid, match=r"Nova manages 2 guests here \(g1 is one\).*ignore_nova_conf"):
        configured(NovaSets(), missing, ["g2", "g1"])


ENDED = NovaConf((), is_missing=True)
GOOD = NovaConf(("/etc/nova/nova.conf",), dedicated="4-7", source="nova-compute, process 7", process=7)
UNREADABLE = NovaConf((), source="nova-compute, process 8", process=8, error="/etc/nova/nova.conf cannot be read")


@pytest.mark.fault(71)
@pytest.mark.parametrize("error", [UNREADABLE, replace(UNREADABLE, error="they differ: process 8 and process 9")])
def test_an_error_about_a_process_is_over_when_the_process_has_ended(monkeypatch, error):
    """It would block every plan of the host from then on."""
    found = iter([error, ENDED, GOOD, error, ENDED, ENDED])
    monkeypatch.setattr(nova_conf, "read", lambda *_: next(found))
    reader = nova_conf.Reader()
    assert reader() == error
    assert reader() == ENDED
    assert reader() == GOOD
    assert reader() == error
    for _ in range(2):
        assert reader() == replace(GOOD, source="nova-compute, process 7, which has ended")


@pytest.mark.fault(71)
def test_an_error_of_one_moment_is_read_again(conf, monkeypatch):
    """The same files may be readable a moment later."""
    values, failures = nova_options._values, [cfg.ConfigFilesNotFoundError(["/proc/self/fd/9"])]

    def once(*arguments):
        if failures:
            raise failures.pop()
        return values(*arguments)

    monkeypatch.setattr(nova_options, "_values", once)
    text = "[compute]\ncpu_dedicated_set = 1-3\n"
    assert conf(text).error
    assert (conf(text).error, conf(text).dedicated) == ("", "1-3")


@pytest.mark.fault(71)
def test_a_file_that_cannot_be_read_is_named_with_the_process_and_the_remedy():
    with pytest.raises(Invalid) as refused:
        UNREADABLE.sets()
    message = str(refused.value)
    assert all(part in message for part in ("process 8", "/etc/nova/nova.conf", "[nova] nova_conf", "ignore_nova_conf"))
