"""Which limit makes UDP drop packets: a program's own buffer, a sysctl, UDP's memory, or none of them."""

from dataclasses import replace

import pytest
from support.made_up.readings import Seen, findings, reading

from pinner.model.machine.process import CpuQuota
from pinner.model.reading import HostDetails, HostSample, SocketOwner, Throttled, UdpSocket

DEFAULT, MOST = 212_992, 4_194_304
SETTINGS = {
    "proc/sys/net/core/rmem_default": str(DEFAULT),
    "proc/sys/net/core/wmem_default": str(DEFAULT),
    "proc/sys/net/core/wmem_max": str(DEFAULT),
    "proc/sys/net/ipv4/udp_mem": "100000\t200000\t300000",
}


def host(buffer=None, settings=SETTINGS, unit="ovs.service", **grown):
    """A host whose counters grew so much in 2 s, with one socket that dropped as many packets."""
    owners = {} if buffer is None else {55: SocketOwner(70, "ovs-vswitchd", unit, buffer)}
    details = HostDetails(settings=settings, socket_owners=owners)
    zero = dict.fromkeys(grown, 5) | {"UdpMemPages": 1000, "MemTotal": 64 << 20}
    first, last = (
        HostSample(
            counters={name: count + times * grown.get(name, 0) for name, count in zero.items()},
            sockets=(UdpSocket("0.0.0.0:4789", 55, 0, 1 + 9 * times, 4096),),
        )
        for times in (0, 1)
    )
    return reading(Seen(sample=first), Seen(sample=last, sysctls={"net.core.rmem_max": MOST}, details=details))


def known(of):
    return {each.code: each for each in findings(of) if each.severity != "unknown"}


def lines(found):
    return [each.line for each in found.remedies]


RESTART = "systemctl restart ovs.service"
KINDS = {
    "its program asks for no receive buffer and has rmem_default (212992 bytes), or its own SO_RCVBUF is the limit "
    "(106496 bytes)": (
        DEFAULT,
        ["sysctl -w net.core.rmem_default=4194304", "net.core.rmem_default = 4194304", RESTART],
        False,
    ),
    "its program asks for rmem_max (4194304 bytes) or more": (
        2 * MOST,
        ["sysctl -w net.core.rmem_max=26214400", "net.core.rmem_max = 26214400", RESTART],
        True,
    ),
    "its own SO_RCVBUF is the limit (50000 bytes)": (100_000, [], False),
    "its program began with the kernel's former limit (212992 bytes), or its own SO_RCVBUF is the limit "
    "(212992 bytes)": (2 * 212_992, [RESTART], False),
}


@pytest.mark.parametrize("why", KINDS)
def test_the_limit_of_a_socket_that_drops_is_named_with_its_program(why):
    buffer, wanted, is_fixable = KINDS[why]
    found = known(host(buffer, UdpRcvbufErrors=9))
    socket, whole = found["udp-socket-drops"], found["udp-buffer-errors"]
    assert socket.message == f"the UDP socket at 0.0.0.0:4789 of ovs-vswitchd (70) drops packets: {why}"
    assert (lines(socket), socket.is_fixable) == (wanted, is_fixable)
    assert (lines(whole), whole.is_fixable) == (wanted, is_fixable)
    assert {each.name: each.value for each in whole.evidence}["socket 0.0.0.0:4789"] == f"ovs-vswitchd (70): {why}"


def test_a_program_that_no_unit_of_systemd_has_is_restarted_by_a_person():
    assert lines(known(host(2 * 212_992, unit="/docker/5", UdpRcvbufErrors=9))["udp-socket-drops"]) == []


def test_a_restart_starts_no_job_of_a_user():
    (restart,) = known(host(2 * 212_992, unit="cron.service", UdpRcvbufErrors=9))["udp-socket-drops"].remedies
    assert restart.where.endswith("cron.service does no harm; it starts no job of a user anew, as cron does not")


def test_no_buffer_is_enlarged_for_a_service_that_a_cpu_limit_stops():
    of = host(DEFAULT, UdpRcvbufErrors=9)
    path = "system.slice/system-net.slice/ovs.service"
    stopped = [{path: Throttled(CpuQuota(20_000), times * 10**9, None)} for times in (0, 1)]
    samples = (replace(each, throttled=times) for each, times in zip(of.samples, stopped, strict=True))
    found = known(replace(of, samples=tuple(samples)))
    why = "drops packets: a CPU limit stops ovs.service 50 % of the time"
    assert found["udp-socket-drops"].message.endswith(why)
    assert {lines(each) == [] and not each.is_fixable for each in found.values()} == {True}


@pytest.mark.parametrize(("first", "last", "is_slow"), [(150_000, 200_000, True), (4096, 200_000, False)])
def test_no_buffer_is_enlarged_for_a_program_that_does_not_read(first, last, is_slow):
    """A burst fills the buffer for a moment."""
    of = host(DEFAULT, UdpRcvbufErrors=9)
    samples = (
        replace(each, sockets=tuple(replace(socket, unread=unread) for socket in each.sockets))
        for each, unread in zip(of.samples, (first, last), strict=True)
    )
    found = known(replace(of, samples=tuple(samples)))
    why = "drops packets: its program reads too slowly (200000 bytes are unread, 150000 at first)"
    assert found["udp-socket-drops"].message.endswith(why) == is_slow
    assert {lines(each) == [] and not each.is_fixable for each in found.values()} == {is_slow}


def test_sockets_without_end_do_not_hide_the_finding():
    of = host(DEFAULT, UdpRcvbufErrors=9)
    owner = SocketOwner(70, "x" * 15, f"{'u' * 200}.service", 2 * 212_992)
    samples = tuple(
        replace(each, sockets=tuple(UdpSocket(f"0.0.0.0:{at}", at, 0, 1 + at * times, 0) for at in range(1, 1025)))
        for each, times in zip(of.samples, (0, 1), strict=True)
    )
    owners = {at: replace(owner, pid=at, unit=f"u{at}{owner.unit}") for at in range(1, 1025)}
    details = replace(of.details, socket_owners=owners)
    found = known(replace(of, samples=samples, details=details))["udp-buffer-errors"]
    evidence = {each.name: each.value for each in found.evidence}
    assert "socket 0.0.0.0:1024" in evidence
    assert evidence["other sockets"] == 1024 - 32
    assert len(found.remedies) == 32


def test_without_the_size_of_the_buffer_rmem_max_is_proposed():
    for of in (host(None, UdpRcvbufErrors=9), host(0, UdpRcvbufErrors=9)):
        assert lines(known(of)["udp-socket-drops"])[0] == "sysctl -w net.core.rmem_max=26214400"
        assert known(of)["udp-buffer-errors"].is_fixable


def test_the_cure_ends_with_the_program_that_has_its_own_limit():
    """After rmem_default and rmem_max are raised, and the programs are restarted."""
    cured = {**SETTINGS, "proc/sys/net/core/rmem_default": "4194304"}
    still = known(host(4_194_304, cured, UdpRcvbufErrors=9))["udp-socket-drops"]
    assert lines(still)[0] == "sysctl -w net.core.rmem_default=8388608"
    largest = {**SETTINGS, "proc/sys/net/core/rmem_default": "26214400"}
    assert lines(known(host(26_214_400, largest, UdpRcvbufErrors=9))["udp-socket-drops"]) == []


@pytest.mark.parametrize("other", [{"UdpMemErrors": 9}, {"UdpInCsumErrors": 9}])
def test_no_buffer_is_enlarged_for_packets_that_another_limit_drops(other):
    found = known(host(DEFAULT, UdpRcvbufErrors=0, UdpInErrors=9, **other))
    assert "udp-buffer-errors" not in found
    assert found["udp-socket-drops"].message.endswith("drops packets, and no receive buffer of the host was full")
    assert lines(found["udp-socket-drops"]) == []


def memory(*pages, settings=SETTINGS):
    """A host that drops packets without memory for them; UDP used so many pages in each sample."""
    of = host(settings=settings, UdpMemErrors=40, UdpInErrors=40, UdpRcvbufErrors=0)
    samples = (
        replace(each, counters={**each.counters, "UdpMemPages": used})
        for each, used in zip(of.samples, pages, strict=True)
    )
    return known(replace(of, samples=tuple(samples)))["udp-memory-full"]


@pytest.mark.parametrize(("pages", "is_udps"), [((1000, 49_000), False), ((50_000, 1000), True)])
def test_udp_gets_no_more_memory_where_it_uses_little(pages, is_udps):
    """The memory limit of a cgroup drops packets, too."""
    found = memory(*pages)
    why = "the memory of UDP is full" if is_udps else "a memory limit leaves none for them: UDP uses little"
    assert found.message == f"UDP sockets of the host drop packets, because {why}"
    assert bool(lines(found)) == is_udps


def test_the_memory_of_udp_is_full():
    found = memory(200_000, 290_000)
    assert found.severity == "critical"
    assert lines(found) == [
        "sysctl -w net.ipv4.udp_mem='200000 400000 600000'",
        "net.ipv4.udp_mem = 200000 400000 600000",
    ]
    assert {each.name: each.value for each in found.evidence} == {
        "UdpMemErrors": 40,
        "UdpMemErrors rate": 20.0,
        "in use": 290_000,
        "udp_mem": "100000 200000 300000",
    }


@pytest.mark.parametrize("udp_mem", ["1000000 2000000 3000000", "", "odd", "1 2"])
def test_udp_gets_no_more_than_a_quarter_of_the_memory(udp_mem):
    assert lines(memory(10**6, 10**6, settings={"proc/sys/net/ipv4/udp_mem": udp_mem})) == []


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"UdpInErrors": 12, "UdpRcvbufErrors": 4, "UdpMemErrors": 1}, "the host discards 3.5 UDP packets/s for which "
         "neither a receive buffer nor UDP's memory was full"),
        ({"UdpInErrors": 12, "UdpRcvbufErrors": 4}, "the host discards 4 UDP packets/s for which no receive buffer was "
         "full"),
        ({"Udp6InErrors": 12, "Udp6MemErrors": 0, "Udp6RcvbufErrors": 0}, "the host discards 6 UDP packets/s for which "
         "neither a receive buffer nor UDP's memory was full"),
    ],
)  # fmt: skip
def test_errors_that_no_full_buffer_explains(counts, message):
    assert known(host(**counts))["udp-in-errors"].message == message


def test_a_wrong_checksum_is_named():
    found = known(host(UdpInErrors=12, UdpMemErrors=0, UdpInCsumErrors=12))["udp-in-errors"]
    assert {each.name: each.value for each in found.evidence}["wrong checksums"] == 12


def test_errors_with_a_full_buffer_are_one_finding():
    of = host(UdpInErrors=12, UdpRcvbufErrors=12, UdpMemErrors=0)
    assert set(known(of)) == {"udp-buffer-errors", "udp-socket-drops"}
    assert "udp-in-errors" not in known(host(UdpInErrors=1))


def test_packets_that_cannot_be_sent():
    found = known(host(UdpSndbufErrors=8))["udp-send-errors"]
    assert found.message.endswith("because their send buffers, or the queue of a card, are full")
    assert lines(found) == [
        "sysctl -w net.core.wmem_max=26214400",
        "net.core.wmem_max = 26214400",
        "sysctl -w net.core.wmem_default=4194304",
        "net.core.wmem_default = 4194304",
    ]
    large = dict.fromkeys(SETTINGS, "26214400")
    assert lines(known(host(settings=large, UdpSndbufErrors=8))["udp-send-errors"]) == []


@pytest.mark.parametrize("name", ["UdpMemErrors", "UdpInErrors", "UdpSndbufErrors", "TcpRetransSegs"])
def test_a_counter_that_went_back_is_not_known(name):
    assert (
        not {"udp-memory-full", "udp-in-errors", "udp-send-errors", "tcp-retransmits"}
        & known(host(**{name: -3, "TcpOutSegs": 9})).keys()
    )
    assert any("went back" in each.message for each in findings(host(**{name: -3, "TcpOutSegs": 9})))


@pytest.mark.parametrize(
    ("lost", "syn", "severity"), [(20, 0, "warning"), (200, 0, "critical"), (5, 0, None), (200, 199, None)]
)
def test_services_of_the_host_retransmit_by_rate(lost, syn, severity):
    """A first packet to a host that is away (SYN) is no loss."""
    of = host(TcpRetransSegs=lost, TcpExtTCPSynRetrans=syn, TcpOutSegs=1000, TcpExtTCPDSACKRecv=1)
    found = known(of).get("tcp-retransmits")
    assert (found and found.severity) == severity
    if found:
        facts = {each.name: each.value for each in found.evidence}
        assert facts == {"segments sent again": lost, "segments sent again rate": lost / 2, "share": lost / 10,
                         "needless": 1}  # fmt: skip


@pytest.mark.parametrize(
    "unit",
    ["x; reboot #.service", "*.service", "-Hroot@there.service", "/user.slice/user@1000.service/app.slice/ssh.service"],
)
def test_a_unit_whose_name_a_user_chose_is_not_restarted(unit):
    of = host(2 * 212_992, unit=unit, UdpRcvbufErrors=9)
    assert lines(known(of)["udp-socket-drops"]) == []


def test_a_reading_of_one_sample_has_none():
    of = host(
        DEFAULT, UdpRcvbufErrors=9, UdpMemErrors=9, UdpSndbufErrors=9, UdpInErrors=90, TcpRetransSegs=90, TcpOutSegs=90
    )
    assert not known(replace(of, samples=of.samples[-1:]))
