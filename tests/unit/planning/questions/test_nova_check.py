"""The findings of `pinner nova check`, each with the line to change."""

from dataclasses import replace

import pytest
from data.field import tuned
from support.hosts import cpus, guest, plain, process, snapshot

from pinner.model.guest.guest import NovaIdentity
from pinner.model.guest.nova import Finding, Listening, NovaConf
from pinner.model.snapshot import OvsDpdk, OvsMasks
from pinner.planning.questions.nova_check import report

GOOD = NovaConf(
    ("/etc/nova/nova.conf",),
    dedicated="8-15",
    shared="2-7",
    format="both",
    topics=("versioned_notifications",),
    drivers=("messagingv2",),
)
MISSING = NovaConf((), is_missing=True)
COMPUTE, OURS = "nova.conf [compute]", "pinner.conf [nova]"


def host(conf=GOOD, guests=(), dedicated="8-15", shared="2-7", running=()):
    processes = [process(300 + n, 0.0, "0-15", name=name) for n, name in enumerate(running)]
    return snapshot(plain(16), guests, processes, dedicated=cpus(dedicated), shared=cpus(shared), nova=conf)


BY_DEFAULT = Listening()


def found(*arguments, listening=BY_DEFAULT, **more) -> list[tuple[str, str, str]]:
    return [(one.what, one.remedy, one.where) for one in report(host(*arguments, **more), listening).findings]


def pinned(*pins: str):
    return guest(1, len(pins), cpus("0-15"), pins=pins, dedicated=True, nova=NovaIdentity("i", "p", "u", "f"))


def test_a_host_with_matching_settings_has_no_finding() -> None:
    checked = report(host(guests=[pinned("8", "9"), guest(2, 2, cpus("2-7"))], running=["sshd"]), BY_DEFAULT)
    assert checked.findings == ()
    assert (str(checked.dedicated), str(checked.shared), checked.files) == ("8-15", "2-7", ("/etc/nova/nova.conf",))
    assert [(one.name, str(one.cpus)) for one in checked.guests] == [("g1", "8-9")]
    assert (str(checked.for_vcpus), str(checked.for_others), str(checked.unused)) == ("2-7", "0-7", "")


def test_a_host_without_nova_has_no_finding() -> None:
    assert found(None, dedicated="", shared="") == []


def test_guests_of_nova_without_a_nova_conf_are_a_finding() -> None:
    novas = guest(1, 1, cpus("0-15"), nova=NovaIdentity("i", "p", "u", "f"))
    assert found(MISSING, [novas], "", "") == [("nova_conf", "nova_conf = /path/of/nova.conf", OURS)]
    assert found(MISSING, [guest(1, 1, cpus("0-15"))], "", "") == []
    assert found(None, [novas], "", "") == []


@pytest.mark.parametrize(
    ("conf", "what", "remedy", "where"),
    [
        ({"format": "unversioned"}, "notification_format", "notification_format = both", "nova.conf [notifications]"),
        ({"drivers": ()}, "driver", "driver = messagingv2", "nova.conf [oslo_messaging_notifications]"),
        ({"drivers": ("log", "noop")}, "driver", "driver = messagingv2", "nova.conf [oslo_messaging_notifications]"),
        (
            {"topics": ("billing",)},
            "versioned_notifications_topics",
            "versioned_notifications_topics = billing,versioned_notifications",
            "nova.conf [notifications]",
        ),
        ({"dedicated": "8-x"}, "cpu_dedicated_set", "cpu_dedicated_set = a list such as 4-15,^8", COMPUTE),
        ({"shared": "^2"}, "cpu_shared_set", "cpu_shared_set = a list such as 4-15,^8", COMPUTE),
        ({"pin_set": "7-2"}, "vcpu_pin_set", "vcpu_pin_set = a list such as 4-15,^8", "nova.conf [DEFAULT]"),
        (
            {"dedicated": "8-14"},
            "cpu_dedicated_set",
            "cpu_dedicated_set =",
            f"{OURS} (empty: pinner uses the value of nova.conf)",
        ),
        (
            {"shared": "2-6"},
            "cpu_shared_set",
            "cpu_shared_set =",
            f"{OURS} (empty: pinner uses the value of nova.conf)",
        ),
        (
            {"error": "no right", "dedicated": "", "shared": ""},
            "nova.conf",
            "nova_conf = /etc/nova/nova.conf",
            f"{OURS}, for a user who may read it",
        ),
    ],
)
def test_a_wrong_option_of_nova_conf_is_a_finding(conf: dict[str, object], what: str, remedy: str, where: str) -> None:
    assert found(replace(GOOD, **conf)) == [(what, remedy, where)]


@pytest.mark.parametrize(("old", "new"), [("messagingv2", "log"), ("messaging", None)])
def test_a_driver_by_its_old_name_is_a_finding(old: str, new: str | None) -> None:
    conf = replace(GOOD, drivers=(old, new) if new else (old,), old_drivers=(old,))
    (finding,) = report(host(conf), BY_DEFAULT).findings
    assert (finding.what, finding.remedy) == ("driver", "driver = messagingv2")
    assert finding.why.startswith("only [DEFAULT] notification_driver sets it: Nova 31 (2025.1) and newer ignore")


def test_a_driver_by_both_names_is_no_finding() -> None:
    assert found(replace(GOOD, drivers=("messagingv2", "messagingv2"), old_drivers=("messagingv2",))) == []


@pytest.mark.parametrize("format_", ["versioned", "both"])
@pytest.mark.parametrize("driver", ["messaging", "messagingv2"])
def test_settings_that_send_notifications_to_pinner_are_no_finding(format_: str, driver: str) -> None:
    assert found(replace(GOOD, format=format_, drivers=("log", driver), topics=("a", "versioned_notifications"))) == []


@pytest.mark.parametrize(
    ("listening", "findings"),
    [
        (Listening(("pinner",), ""), []),
        (Listening(("versioned_notifications", "pinner"), "pinner"), []),
        (Listening(pool=""), [("pool", "pool = pinner", "pinner.conf [nova_listener]")]),
    ],
    ids=["a topic of its own", "a queue of its own", "neither"],
)
def test_a_listener_that_consumes_messages_of_others_is_a_finding(
    listening: Listening, findings: list[tuple[str, str, str]]
) -> None:
    conf = replace(GOOD, topics=("versioned_notifications", "pinner"))
    assert found(conf, listening=listening) == findings


@pytest.mark.parametrize(
    ("dedicated", "shared", "what", "remedy"),
    [
        ("6-15", "2-7", "cpu_shared_set", "cpu_shared_set = 2-5"),
        ("8-17", "2-7", "cpu_dedicated_set", "cpu_dedicated_set = 8-15"),
        ("8-15", "2-7,20", "cpu_shared_set", "cpu_shared_set = 2-7"),
    ],
    ids=["overlap", "dedicated CPUs that are not there", "shared CPUs that are not there"],
)
def test_sets_that_overlap_or_name_absent_cpus_are_findings(
    dedicated: str, shared: str, what: str, remedy: str
) -> None:
    conf = replace(GOOD, dedicated=dedicated, shared=shared)
    assert found(conf, dedicated=dedicated, shared=shared) == [(what, remedy, COMPUTE)]


@pytest.mark.parametrize(
    ("options", "finding"),
    [
        ({"pin_set": "2-9", "shared": ""}, ("vcpu_pin_set", "cpu_shared_set = 2-7", COMPUTE)),
        ({"reserved_cpus": 2}, ("reserved_host_cpus", "reserved_host_cpus = 0", "nova.conf [DEFAULT]")),
        ({"shared": "2-9"}, ("cpu_shared_set", "cpu_shared_set = 2-7", COMPUTE)),
        (
            {"power_management": True, "dedicated": ""},
            ("cpu_power_management", "cpu_power_management = false", "nova.conf [libvirt]"),
        ),
    ],
    ids=["vcpu_pin_set", "reserved_host_cpus", "overlap", "cpu_power_management"],
)
def test_options_with_which_nova_does_not_start_are_findings(options, finding) -> None:
    # Sets that Nova refuses are in no snapshot.
    assert found(replace(GOOD, **options), dedicated="", shared="") == [finding]


def test_offline_cpus_are_findings_where_nova_refuses_them() -> None:
    top = plain(16, offline="3,15")

    def remedies(conf: NovaConf) -> list[str]:
        one = snapshot(top, dedicated=cpus("8-15"), shared=cpus("2-7"), nova=conf)
        return [finding.remedy for finding in report(one, BY_DEFAULT).findings]

    assert remedies(GOOD) == ["cpu_shared_set = 2,4-7", "cpu_dedicated_set = 8-14"]
    assert remedies(replace(GOOD, power_management=True)) == ["cpu_shared_set = 2,4-7"]


GOVERNOR = replace(GOOD, power_management=True, power_strategy="governor")


def governed(conf: NovaConf, governors: dict[str, str], offline: str = "") -> list[tuple[str, str, str]]:
    """The findings of a host whose CPUs have these governors, by CPU list."""
    top = plain(16, offline=offline)
    of = {cpu: governor for listed, governor in governors.items() for cpu in cpus(listed)}
    top = replace(top, cpus=tuple(replace(cpu, governor=of.get(cpu.id)) for cpu in top.cpus))
    one = snapshot(top, dedicated=cpus("8-15"), shared=cpus("2-7"), nova=conf)
    return [(each.what, each.remedy, each.where) for each in report(one, BY_DEFAULT).findings]


def test_offline_cpus_are_a_finding_where_nova_sets_governors() -> None:
    """The strategy cpu_state has left them offline."""
    found = governed(GOVERNOR, {"0-13": "powersave"}, offline="14-15")
    assert found == [("cpu_dedicated_set", "chcpu --enable 14-15", "")]


def test_cpus_without_a_governor_are_a_finding_where_nova_sets_governors() -> None:
    strategy = "cpu_power_management_strategy"
    assert governed(GOVERNOR, {"0-7": "performance"}) == [(strategy, f"{strategy} = cpu_state", "nova.conf [libvirt]")]
    assert governed(GOVERNOR, {"8-11": "performance", "12-15": "powersave"}) == []


def test_different_governors_are_a_finding_where_nova_takes_cpus_offline() -> None:
    conf = replace(GOOD, power_management=True)
    mixed = {"0-9": "performance", "10-13": "powersave"}
    line = "cpupower -c 8-13 frequency-set -g performance"
    assert governed(conf, mixed, offline="14-15") == [("cpu_dedicated_set", line, "")]
    assert governed(conf, {"0-7": "ondemand", "8-15": "powersave"}) == []
    assert governed(GOOD, mixed | {"14-15": "powersave"}) == []


def test_the_governor_of_cpu_0_is_not_novas() -> None:
    conf = replace(GOOD, power_management=True, dedicated="0,8-15")
    top = plain(16)
    top = replace(top, cpus=tuple(replace(cpu, governor="performance" if cpu.id else "powersave") for cpu in top.cpus))
    one = snapshot(top, dedicated=cpus("0,8-15"), shared=cpus("2-7"), nova=conf)
    assert report(one, BY_DEFAULT).findings == ()


def test_a_floating_guest_without_a_shared_set_is_a_finding() -> None:
    floating = guest(1, 1, cpus("0-15"), nova=NovaIdentity("i", "p", "u", "f"))
    only_dedicated = replace(GOOD, shared="")
    assert found(only_dedicated, [floating], shared="") == [("cpu_shared_set", "cpu_shared_set = 4-7", COMPUTE)]
    assert found(only_dedicated, [pinned("8")], shared="") == []


@pytest.mark.parametrize(
    ("conf", "listening", "remedies"),
    [
        ({"is_durable": True}, Listening(), ["amqp_durable_queues = true"]),
        ({}, Listening(is_durable=True), ["amqp_durable_queues = false"]),
        ({"is_durable": True}, Listening(is_durable=True), []),
        ({"is_durable": True, "is_quorum": True}, Listening(), ["rabbit_quorum_queue = true"]),
        ({"is_durable": True, "is_quorum": True}, Listening(is_durable=True), []),
        (
            {"is_durable": True, "is_quorum": True},
            Listening(("pinner",), "", is_durable=True),
            ["rabbit_quorum_queue = true"],
        ),
        ({"is_durable": True, "is_quorum": True}, Listening(is_durable=True, is_quorum=True), []),
    ],
)
def test_queues_of_another_kind_than_the_listeners_are_a_finding(conf, listening, remedies) -> None:
    checked = found(replace(GOOD, topics=("versioned_notifications", "pinner"), **conf), listening=listening)
    assert checked == [(line.split()[0], line, "pinner.conf [oslo_messaging_rabbit]") for line in remedies]


def test_a_file_that_changed_after_the_start_of_nova_compute_is_a_finding() -> None:
    conf = replace(GOOD, changed=("/etc/nova/nova.conf",))
    assert found(conf) == [("nova-compute", "restart nova-compute", "")]


def test_a_process_that_pinner_does_not_believe_is_a_finding() -> None:
    conf = replace(GOOD, ignored_processes=("process 4711: its user is mallory, and neither root nor nova",))
    (finding,) = report(host(conf), BY_DEFAULT).findings
    assert (finding.what, finding.where) == ("nova-compute", OURS)
    assert "process 4711: its user is mallory" in finding.why


@pytest.mark.parametrize(
    ("conf", "dedicated", "remedies"),
    [
        (GOOD, "9-15", ["cpu_dedicated_set = 8-15"]),
        (replace(GOOD, dedicated=""), "", ["cpu_dedicated_set = 8"]),
        (replace(GOOD, dedicated="", shared="", pin_set="2-7"), "", []),
    ],
    ids=["outside the set", "no set", "vcpu_pin_set"],
)
def test_a_pinned_guest_outside_the_dedicated_set_is_a_finding(
    conf: NovaConf, dedicated: str, remedies: list[str]
) -> None:
    checked = report(host(conf, [pinned("8")], dedicated), BY_DEFAULT)
    assert [one.remedy for one in checked.findings if one.what == "guest g1"] == remedies


def test_a_guest_that_nova_pinned_to_shared_cpus_is_pinned_anew() -> None:
    """Nova does not start with sets that overlap."""
    moved = pinned("7", "8")
    checked = report(host(GOOD, [moved], "8-15"), BY_DEFAULT)
    assert [one.remedy for one in checked.findings] == [f"openstack server migrate {moved.uuid}"]


@pytest.mark.parametrize("name", ["irqbalance", "numad", "tuned"])
def test_services_that_move_the_same_threads_are_findings(name: str) -> None:
    assert found(running=["sshd", name]) == [(name, f"systemctl disable --now {name}.service", "")]


def test_tuned_is_not_ended_where_it_isolates() -> None:
    findings = report(tuned.HOST, BY_DEFAULT).findings
    assert [(one.what, one.remedy) for one in findings if one.what == "tuned"] == [("tuned", "")]


def test_several_findings_are_in_a_fixed_order() -> None:
    conf = replace(GOOD, format="unversioned", drivers=())
    assert [what for what, _, _ in found(conf, [pinned("7")], running=["tuned", "irqbalance"])] == [
        "guest g1",
        "notification_format",
        "driver",
        "irqbalance",
        "tuned",
    ]


def test_cpus_that_nova_powered_down_are_unused_and_no_finding() -> None:
    top = plain(16, offline="12-15")
    conf = replace(GOOD, power_management=True)
    checked = report(snapshot(top, dedicated=cpus("8-15"), shared=cpus("2-7"), nova=conf), BY_DEFAULT)
    assert (checked.findings, str(checked.unused), str(checked.for_others)) == ((), "12-15", "0-7")


def test_a_finding_gives_the_wrong_values() -> None:
    (finding,) = report(host(replace(GOOD, topics=("billing",))), BY_DEFAULT).findings
    assert isinstance(finding, Finding)
    assert finding.why == "Nova sends to billing, and pinner listens to versioned_notifications"


def test_the_host_keeps_cpus_of_its_own() -> None:
    """16 CPUs of which 0-1 alone are not dedicated; 4 CPUs of which Open vSwitch polls all but 0."""
    conf = replace(GOOD, dedicated="2-15", shared="")
    assert found(conf, [pinned("0", "1")], "2-15", "") == [
        ("guest g1", "openstack server migrate 00000000-0000-4000-8000-000000000001", "")
    ]
    polled = OvsDpdk(OvsMasks(pmd=cpus("1-3")))
    small = snapshot(plain(4), shared=cpus("1-3"), nova=replace(GOOD, dedicated="", shared="1-3"), ovs=polled)
    assert [(one.what, one.remedy) for one in report(small, BY_DEFAULT).findings] == [("cpu_shared_set", "")]
