"""Hosts with and without each fault of the network: of taps, cards, bridges and protocols."""

from dataclasses import replace

from support.made_up.readings import Seen, counted, nic, placed, reading

from pinner.model.reading import Bridge, GuestSoftirqs, HostDetails, HostSample, SoftnetCpu, UdpSocket

TAP = nic("tap1", "")
CARD = nic()
SMALL = nic(ring=(512, 4096))
LARGE = nic(ring=(4096, 4096))
FEW = nic(ring=(4096, 4096), queues=(2, 8))
QUIET = (0, 0, False)
ADAPTING = nic(ring=(4096, 4096), coalescing=(64, 128, True))
RMEM = "net.core.rmem_max"
RFS = "proc/sys/net/core/rps_sock_flow_entries"


def nics(before, now=None, **more):
    """A reading of one interface, and later of the same."""
    return reading(Seen(nics=(before,)), Seen(nics=(now or before,)), **more)


def softnet(**counts):
    zero = SoftnetCpu(3, 1000, 0, 0)
    return reading(HostSample(softnet=(zero,)), HostSample(softnet=(replace(zero, **counts),)))


def counters(**counts):
    zero = dict.fromkeys(counts, 7)
    return reading(HostSample(counters=zero), HostSample(counters={name: 7 + count for name, count in counts.items()}))


def socket(drops):
    before, now = (UdpSocket("0.0.0.0:4789", 55, 0, count, 4096) for count in (1, 1 + drops))
    return reading(HostSample(sockets=(before,)), HostSample(sockets=(now,)))


def udp_memory(lost, **more):
    """A host with the kernel's own buffers and memory of UDP."""
    settings = {f"proc/sys/net/core/wmem_{name}": "212992" for name in ("default", "max")}
    settings |= {"proc/sys/net/ipv4/udp_mem": "9000 12000 18000"}
    made = counters(UdpMemErrors=lost, **more)
    now = replace(made.now, counters={**made.now.counters, "MemTotal": 4 << 20})
    return replace(made, samples=(made.samples[0], now), details=HostDetails(settings=settings))


def rmem(size):
    return reading(Seen(nics=(CARD,), sysctls={RMEM: size}), guests=[placed()])


def rfs(entries):
    return reading(Seen(nics=(nic(rx_flows=(4096,)),), details=HostDetails(settings={RFS: entries})))


def received(counts, packets=200_000, before=None, settings=None, **more):
    """A guest with these softirqs by vCPU during the sample; ``settings`` are fields of the snapshot."""
    told = [GuestSoftirqs(placed().uuid, "g1", "b", each, **more) for each in (before or {}, counts)]
    tap = nic("tap1", "")
    first, last = (HostSample(softirqs=(each,)) for each in told)
    seen = Seen(nics=(tap,), sample=first), Seen(nics=(counted(tap, tx_packets=packets),), sample=last)
    return reading(*seen, [placed()], **settings or {})


CASES = {
    "tap-drops": (
        nics(TAP, counted(TAP, tx_dropped=50, tx_packets=1000), guests=[placed()]),
        nics(TAP, counted(TAP, tx_packets=1000), guests=[placed()]),
    ),
    "tap-short-queue": (
        nics(nic("tap1", "", queue_length=100), guests=[placed()]),
        nics(nic("tap1", "", queue_length=1000), guests=[placed()]),
    ),
    "tap-without-vhost": (
        reading(guests=[placed(vhost_threads=0)]),
        reading(guests=[placed()]),
    ),
    "tap-single-queue": (
        nics(nic("tap1", "", tx_queues=1), guests=[placed()]),
        nics(nic("tap1", "", tx_queues=4), guests=[placed()]),
    ),
    "guest-packets-one-vcpu": (received({0: 900, 3: 50}), received({0: 500, 3: 450})),
    "nic-small-ring": (
        nics(SMALL, counted(SMALL, rx_missed_errors=9)),
        nics(LARGE, counted(LARGE, rx_missed_errors=9)),
    ),
    "nic-no-room": (
        nics(FEW, counted(FEW, rx_missed_errors=9)),
        nics(SMALL, counted(SMALL, rx_packets=9)),
    ),
    "nic-single-queue": (
        nics(nic(queues=(1, 8))),
        nics(nic(queues=(8, 8))),
    ),
    "nic-no-coalescing": (
        nics(nic(coalescing=QUIET), counted(nic(coalescing=QUIET), rx_packets=200_000)),
        nics(nic(coalescing=QUIET), counted(nic(coalescing=QUIET), rx_packets=200)),
    ),
    "nic-adaptive-moderation": (
        nics(ADAPTING, counted(ADAPTING, rx_packets=200_000, rx_missed_errors=9)),
        nics(ADAPTING, counted(ADAPTING, rx_packets=200_000)),
    ),
    "nic-offloads-off": (nics(nic(offloads={"rx-gro": False})), nics(nic(offloads={"rx-gro": True}))),
    "bridge-no-querier": (
        nics(nic("br0", "", bridge=Bridge(True, False, ("ens1", "tap1")))),
        nics(nic("br0", "", bridge=Bridge(True, True, ("ens1", "tap1")))),
    ),
    "rps-on-guest-cpus": (
        nics(nic(rps=("4-7",)), guests=[placed()]),
        nics(nic(rps=("8-9",)), guests=[placed()]),
    ),
    "rfs-half-set": (rfs("0"), rfs("32768")),
    "softnet-drops": (softnet(dropped=3), softnet(processed=5000)),
    "softnet-squeezed": (softnet(squeezed=20), softnet(squeezed=1)),
    "udp-buffer-errors": (counters(UdpRcvbufErrors=5), counters(UdpRcvbufErrors=0)),
    "udp-socket-drops": (socket(4), socket(0)),
    "udp-memory-full": (udp_memory(5), udp_memory(0)),
    "udp-in-errors": (counters(UdpInErrors=5), counters(UdpInErrors=5, UdpRcvbufErrors=5)),
    "udp-send-errors": (udp_memory(0, UdpSndbufErrors=5), udp_memory(0, UdpSndbufErrors=0)),
    "tcp-retransmits": (
        counters(TcpRetransSegs=20, TcpOutSegs=1000),
        counters(TcpRetransSegs=20, TcpExtTCPSynRetrans=20, TcpOutSegs=1000),
    ),
    "udp-small-buffers": (rmem(212_992), rmem(26_214_400)),
    "tcp-listen-drops": (counters(TcpExtListenDrops=2), counters(TcpExtListenDrops=0)),
}
