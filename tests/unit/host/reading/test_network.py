"""The counters of a made-up network, and what the kernel tells about the loopback interface by ethtool's requests.

tests/functional asks cards.
"""

import errno
import os
import shutil
import socket

import pytest
from support.hosts import cpus
from support.roots import write

from pinner import codec
from pinner.host.reading.network import (
    read_counters,
    read_driver_counters,
    read_nic_counters,
    read_nics,
    read_offloads,
    read_sockets,
    read_softnet,
)
from pinner.host.settings.rps import read_rps
from pinner.model.machine.topology import Device
from pinner.model.reading import Bridge, SoftnetCpu, UdpSocket
from pinner.model.settings.cards import RpsQueue


@pytest.fixture
def only_local_sockets(monkeypatch):
    """The families of sockets that the agent's unit allows (RestrictAddressFamilies)."""
    real = socket.socket

    class Restricted(real):
        def __init__(self, family=socket.AF_INET, *more, **options):
            if family not in (socket.AF_UNIX, socket.AF_NETLINK):
                raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
            super().__init__(family, *more, **options)

    monkeypatch.setattr(socket, "socket", Restricted)


def test_an_interface_is_read_with_the_sockets_of_the_agents_unit(only_local_sockets):
    offloads, refused = read_offloads("lo")
    assert refused == ""
    assert offloads
    assert read_driver_counters("lo") == ({}, "")


def test_an_interface_has_its_queues_and_counters(tmp_path):
    net = "sys/class/net/br0"
    root = write(
        tmp_path,
        {
            f"{net}/operstate": "up\n",
            f"{net}/tx_queue_len": "500\n",
            f"{net}/queues/rx-0/rps_flow_cnt": "2048\n",
            f"{net}/queues/rx-1/rps_flow_cnt": "0\n",
            f"{net}/queues/tx-0/xps_cpus": "3\n",
            f"{net}/statistics/rx_packets": "77\n",
            f"{net}/statistics/odd": "many\n",
            f"{net}/bridge/multicast_snooping": "1\n",
            f"{net}/bridge/multicast_querier": "0\n",
            f"{net}/brif/tap0/port_no": "1\n",
            "sys/class/net/lo/type": "772\n",
        },
    )
    (nic,) = read_nics(root, (Device("net", "br0", None, ""),))
    assert (nic.name, nic.device, nic.is_up, nic.queue_length) == ("br0", "", True, 500)
    assert (nic.rx_flows, nic.tx_queues) == ((2048, 0), 1)
    assert nic.bridge == Bridge(True, False, ("tap0",))
    (counters,) = read_nic_counters(root)
    assert (counters.key, counters.statistics) == (nic.key, {"rx_packets": 77})


@pytest.mark.parametrize("name", [b"e\xffth0", b"\x1b[31meth0"])
def test_an_interface_whose_name_cannot_be_written_hides_no_other(tmp_path, name):
    net = "sys/class/net/br0"
    files = {"ifindex": "3\n", "queues/rx-0/rps_cpus": "f\n", "bridge/multicast_snooping": "1\n"}
    root = write(tmp_path, {f"{net}/{file}": text for file, text in files.items()})
    odd = os.fsdecode(name)
    shutil.copytree(tmp_path / net, tmp_path / "sys/class/net" / odd)
    (tmp_path / net / "brif" / odd).mkdir(parents=True)
    (found,) = read_nics(root, ())
    assert found.index == 3
    assert codec.load(type(found), codec.dump(found)) == found
    assert read_rps(root) == (RpsQueue("br0", 3, 0, cpus("0-3")),)


def test_softnet_rows_have_the_number_of_their_cpu(tmp_path):
    modern = "0000000a 00000001 00000002 0 0 0 0 0 0 0 0 00000000 00000005 0 0\n"
    old = "0000000a 00000001 00000002 0 0 0 0 0 0 0 0\n"
    assert read_softnet(write(tmp_path / "a", {"proc/net/softnet_stat": modern})) == (SoftnetCpu(5, 10, 1, 2),)
    rows = read_softnet(write(tmp_path / "b", {"proc/net/softnet_stat": old + old + "broken\n"}))
    assert rows == (SoftnetCpu(0, 10, 1, 2), SoftnetCpu(1, 10, 1, 2))


def test_counters_have_the_names_that_nstat_prints(tmp_path):
    root = write(
        tmp_path,
        {
            "proc/net/snmp": "Udp: InDatagrams RcvbufErrors\nUdp: 5 6\nOdd: A\nOdd: 1\n",
            "proc/net/netstat": "TcpExt: ListenOverflows ListenDrops\nTcpExt: 7 8\n",
            "proc/net/snmp6": "Ip6InReceives  1\nUdp6RcvbufErrors                \t9\n",
            "proc/vmstat": "nr_free_pages 1\npswpin 10\n",
            "proc/meminfo": "MemTotal:       100 kB\nMemAvailable:    50 kB\nOdd: x\n",
        },
    )
    assert read_counters(root) == {
        "UdpInDatagrams": 5,
        "UdpRcvbufErrors": 6,
        "TcpExtListenOverflows": 7,
        "TcpExtListenDrops": 8,
        "Udp6RcvbufErrors": 9,
        "pswpin": 10,
        "MemTotal": 100,
        "MemAvailable": 50,
    }


def test_sockets_that_drop_packets_or_have_unread_ones(tmp_path):
    heading = (
        "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref p d\n"
    )
    quiet = " 1: 0100007F:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000  0 0 10 2 0 0\n"
    full = " 2: 0100007F:12B5 00000000:0000 07 00000000:00000400 00:00000000 00000000 64 0 11 2 0 33\n"
    root = write(tmp_path, {"proc/net/udp": heading + quiet + full + "broken\n"})
    assert read_sockets(root) == (UdpSocket("127.0.0.1:4789", 11, 64, 33, 1024),)
