"""What the kernel tells about the loopback interface by ethtool's requests. tests/functional asks cards."""

import errno
import os
import socket

import pytest

from pinner.host.reading.network import read_driver_counters, read_offloads


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
