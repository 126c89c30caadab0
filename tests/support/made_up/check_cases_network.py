"""Hosts with and without each fault of the network: of taps, cards, bridges and protocols."""

from dataclasses import replace

from support.hosts import cpus
from support.made_up.readings import counted, nic, placed, reading

from pinner.model.cpuset import CpuSet
from pinner.model.reading import (
    Bridge,
    Channels,
    Coalescing,
    HostSample,
    Rings,
    RxQueue,
    SoftnetCpu,
    UdpSocket,
)

TAP = nic("tap1", "")
CARD = nic()
SMALL = nic(rings=Rings(512, 4096, 512, 4096))
LARGE = nic(rings=Rings(4096, 4096, 4096, 4096))
QUIET = Coalescing(0, 0, is_adaptive=False)
RMEM = "proc/sys/net/core/rmem_max"


def nics(before, now=None, **more):
    """A reading of one interface, and later of the same."""
    return reading(HostSample(nics=(before,)), HostSample(nics=(now or before,)), **more)


def softnet(**counts):
    zero = SoftnetCpu(3, 1000, 0, 0)
    return reading(HostSample(softnet=(zero,)), HostSample(softnet=(replace(zero, **counts),)))


def counters(**counts):
    zero = dict.fromkeys(counts, 7)
    return reading(HostSample(counters=zero), HostSample(counters={name: 7 + count for name, count in counts.items()}))


def socket(drops):
    before, now = (UdpSocket("0.0.0.0:4789", 55, 0, count, 4096) for count in (1, 1 + drops))
    return reading(HostSample(sockets=(before,)), HostSample(sockets=(now,)))


def rmem(size):
    return reading(HostSample(nics=(CARD,), settings={RMEM: size}), guests=[placed()])


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
        nics(nic("tap1", "", xps=(CpuSet(),)), guests=[placed()]),
        nics(nic("tap1", "", xps=(CpuSet(),) * 4), guests=[placed()]),
    ),
    "nic-small-ring": (
        nics(SMALL, counted(SMALL, rx_missed_errors=9)),
        nics(LARGE, counted(LARGE, rx_missed_errors=9)),
    ),
    "nic-no-room": (
        nics(LARGE, counted(LARGE, rx_missed_errors=9)),
        nics(SMALL, counted(SMALL, rx_packets=9)),
    ),
    "nic-single-queue": (
        nics(nic(channels=Channels(1, 8, 0, 0, 0, 0))),
        nics(nic(channels=Channels(8, 8, 0, 0, 0, 0))),
    ),
    "nic-no-coalescing": (
        nics(nic(coalescing=QUIET), counted(nic(coalescing=QUIET), rx_packets=200_000)),
        nics(nic(coalescing=QUIET), counted(nic(coalescing=QUIET), rx_packets=200)),
    ),
    "nic-offloads-off": (nics(nic(offloads={"rx-gro": False})), nics(nic(offloads={"rx-gro": True}))),
    "bridge-no-querier": (
        nics(nic("br0", "", bridge=Bridge(True, False, ("ens1", "tap1")))),
        nics(nic("br0", "", bridge=Bridge(True, True, ("ens1", "tap1")))),
    ),
    "rps-on-guest-cpus": (
        nics(nic(rx_queues=(RxQueue(cpus("4-7"), 0),)), guests=[placed()]),
        nics(nic(rx_queues=(RxQueue(cpus("8-9"), 0),)), guests=[placed()]),
    ),
    "rfs-half-set": (
        reading(
            HostSample(
                nics=(nic(rx_queues=(RxQueue(CpuSet(), 4096),)),),
                settings={"proc/sys/net/core/rps_sock_flow_entries": "0"},
            )
        ),
        reading(
            HostSample(
                nics=(nic(rx_queues=(RxQueue(CpuSet(), 4096),)),),
                settings={"proc/sys/net/core/rps_sock_flow_entries": "32768"},
            )
        ),
    ),
    "softnet-drops": (softnet(dropped=3), softnet(processed=5000)),
    "softnet-squeezed": (softnet(squeezed=20), softnet(squeezed=1)),
    "udp-buffer-errors": (counters(UdpRcvbufErrors=5), counters(UdpRcvbufErrors=0)),
    "udp-socket-drops": (socket(4), socket(0)),
    "udp-small-buffers": (rmem("212992"), rmem("26214400")),
    "tcp-listen-drops": (counters(TcpExtListenDrops=2), counters(TcpExtListenDrops=0)),
}
