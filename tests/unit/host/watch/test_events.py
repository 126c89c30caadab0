"""The files to watch, in hand-made trees of cgroup v1 and v2, and bursts of events."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import roots

from pinner.host.kernel.kernel import cpuset_mount
from pinner.host.watch import events
from pinner.host.watch.events import Debouncer

UUID = "6a5b7a0e-0000-4000-8000-000000000001"
V1 = {"proc/mounts": "cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n"}
V2 = {
    "proc/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
    "sys/fs/cgroup/cgroup.controllers": "cpuset cpu\n",
}
LAYOUTS = {
    "v1": (V1, "12:cpuset:{}\n0::/elsewhere\n", "sys/fs/cgroup/cpuset", "/machine/qemu-1-g1.libvirt-qemu", ""),
    "v2": (V2, "0::{}\n", "sys/fs/cgroup", "/machine.slice/machine-qemu-1.scope", "/libvirt"),
}


@pytest.fixture(params=LAYOUTS.values(), ids=LAYOUTS)
def host(request, tmp_path):
    """A guest with two vCPUs and an iothread, and a service: root, mount, the guest's path, the folder of its parts."""
    base, rows, mount, guest, parts_folder = request.param
    files = dict(base)
    for part in ("", *(f"{parts_folder}/{name}" for name in ("emulator", "vcpu0", "vcpu1", "iothread1"))):
        files[f"{mount}{guest}{part}/cpuset.cpus"] = "0-3\n"
    roots.write(tmp_path, files)
    command = b"/usr/bin/qemu-system-x86_64\0-uuid\0" + UUID.encode() + b"\0"
    emulator = rows.format(f"{guest}{parts_folder}/emulator")
    roots.process(tmp_path, 400, name=b"qemu-system-x86", command=command, cgroup=emulator)
    roots.process(tmp_path, 500, name=b"busyd", cgroup=rows.format("/system.slice/busyd.service"))
    roots.process(tmp_path, 501, name=b"unconfined", cgroup=rows.format("/"))
    for pid, name in ((400, "qemu-system-x86"), (500, "busyd"), (501, "unconfined")):
        (tmp_path / f"proc/{pid}/comm").write_text(f"{name}\n")
    return tmp_path, cpuset_mount(tmp_path), guest, parts_folder


def test_each_cpuset_of_a_guest_has_its_part(host):
    root, mount, guest, parts_folder = host
    found = events.find_watched(root, mount, {UUID}, ())
    assert found.qemus == {400: UUID}
    cpus = {
        path.removeprefix(str(mount.folder)).removesuffix("/cpuset.cpus"): owner
        for path, owner in found.files.items()
        if path.endswith("/cpuset.cpus")
    }
    inside = f"{guest}{parts_folder}"
    assert {path: owner and (owner.kind, owner.part) for path, owner in cpus.items()} == {
        guest.rpartition("/")[0]: None,
        guest: None,
        inside: None,
        f"{inside}/emulator": ("emulator", None),
        f"{inside}/vcpu0": ("vcpu", 0),
        f"{inside}/vcpu1": ("vcpu", 1),
        f"{inside}/iothread1": ("iothread", 1),
    }
    assert {owner.guest for owner in cpus.values() if owner} == {UUID}


def test_the_cpusets_of_a_service_are_its_cgroup_and_the_parents(host):
    root, mount, *_ = host
    found = events.find_watched(root, mount, (), {"busyd", "unconfined"})
    assert (found.qemus, found.named) == ({}, {500: "busyd", 501: "unconfined"})
    assert [path.removeprefix(f"{mount.folder}/") for path in found.files if path.endswith("cpuset.cpus")] == [
        "system.slice/busyd.service/cpuset.cpus",
        "system.slice/cpuset.cpus",
    ]


def test_nothing_is_watched_without_guests_and_names(host):
    root, mount, *_ = host
    assert events.find_watched(root, mount, (), ()) == events.Watched({}, {}, {})


def test_without_the_cpuset_controller_no_files_are_watched(host):
    root, *_ = host
    (root / "proc/mounts").write_text("")
    found = events.find_watched(root, cpuset_mount(root), {UUID}, {"busyd"})
    assert (found.qemus, found.files) == ({400: UUID}, {})


TIMES = st.lists(st.tuples(st.floats(0, 100), st.sampled_from("abc")), max_size=30)


@given(TIMES)
def test_every_value_is_returned_once_and_in_time(times):
    debouncer: Debouncer[str, float] = Debouncer(0.5)
    added = sorted(times)
    returned: list[tuple[str, float]] = []
    for now, key in [*added, (1000.0, "a")]:
        while (wait := debouncer.wait(now, 9.0)) == 0.0:
            returned += [(key, at) for key, values in debouncer.due(now) for at in values]
        assert wait <= 9.0
        for key_due, values in debouncer.due(now):
            raise AssertionError(f"{key_due} {values} was due without a wait of 0")
        debouncer.add(key, now, now)
    assert sorted(returned) == sorted((key, at) for at, key in added)


def test_a_burst_is_returned_together_by_the_time_of_its_first_value():
    debouncer: Debouncer[str, int] = Debouncer(0.1)
    for number, now in enumerate((10.0, 10.04, 10.08)):
        debouncer.add("g1", number, now)
    debouncer.add("g2", 7, 10.05)
    assert debouncer.due(10.09) == []
    assert debouncer.wait(10.09, 5.0) < 0.011
    assert debouncer.due(10.11) == [("g1", [0, 1, 2])]
    assert debouncer.due(10.2) == [("g2", [7])]
    assert debouncer.wait(10.2, 5.0) == 5.0
