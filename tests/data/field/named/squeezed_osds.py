"""Six ceph-osd want 99 % of a CPU each, and an operator keeps all of them on CPU 1 of 32.

Right: a place with six CPUs for them. Without the six others, one of them fills a CPU as a polling thread does.
"""

from support.hosts import cpus, guest, plain, process, snapshot


def _host(osds: int, mask: str):
    names = [process(900 + n, 99.0, mask, name="ceph-osd", reasons=["restricted"]) for n in range(osds)]
    return snapshot(plain(32), [guest(1, 4, cpus("8-31"))], names)


HOST = _host(6, "1")
ALONE = _host(1, "1")
ROOMY = _host(6, "1-7")
ANYWHERE = _host(40, "0-31")
"""The whole host is full: nobody put these on too few CPUs."""
