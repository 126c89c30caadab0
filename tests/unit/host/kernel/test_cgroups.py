import pytest
from support.roots import write
from support.values import cpus

from pinner.host.kernel import cgroups
from pinner.host.kernel.cgroups import Part
from pinner.host.kernel.kernel import Mount


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("emulator", Part("emulator", None)),
        ("vcpu0", Part("vcpu", 0)),
        ("vcpu127", Part("vcpu", 127)),
        ("iothread1", Part("iothread", 1)),
        ("libvirt", None),
        ("vcpu", None),
        ("vcpu1x", None),
        ("machine-qemu.scope", None),
    ],
)
def test_the_folder_name_gives_the_part(name, part):
    assert cgroups.part_of(name) == part


ONLINE = cpus("0-23")
SCOPE = r"machine.slice/machine-qemu\x2d1\x2dg1.scope"


def tree(root, version, cpusets, partitions=()):
    """The mount of a cpuset controller, with the effective CPUs of each folder; ``cpusets`` may leave out folders
    without the controller."""
    mount = Mount(version, root)
    for path, effective in cpusets.items():
        folder = root / path
        folder.mkdir(parents=True, exist_ok=True)
        (folder / cgroups.EFFECTIVE[version]).write_text(f"{effective}\n")
        (folder / cgroups.PARTITION).write_text("root\n" if path in partitions else "member\n")
    return mount


def limits(mount, path):
    return [(limit.path, str(limit.cpus)) for limit in cgroups.limits(mount, cgroups.without_part(path), ONLINE)]


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_each_cgroup_that_leaves_out_more_cpus_is_a_limit(tmp_path, version):
    tenants = "machine.slice/machine-tenants.slice"
    mount = tree(
        tmp_path,
        version,
        {"": "0-23", "machine.slice": "3-11,15-23", tenants: "3-11", f"{tenants}/g1.scope": "3-11"},
    )
    assert limits(mount, f"/{tenants}/g1.scope/libvirt/emulator") == [
        ("machine.slice", "3-11,15-23"),
        (tenants, "3-11"),
    ]


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_the_cgroup_of_one_part_of_a_guest_is_no_limit(tmp_path, version):
    mount = tree(tmp_path, version, {"": "0-23", SCOPE: "0-23", f"{SCOPE}/emulator": "1"})
    assert limits(mount, f"/{SCOPE}/emulator") == []


def test_a_partition_of_libvirt_without_systemd_is_a_limit(tmp_path):
    """<resource><partition>/production</partition> on cgroup v1."""
    guests = "production.partition/qemu-1-g1.libvirt-qemu"
    mount = tree(tmp_path, "v1", {"": "0-23", "production.partition": "4-7", guests: "4-7", f"{guests}/emulator": "4"})
    assert limits(mount, f"/{guests}/emulator") == [("production.partition", "4-7")]


def test_a_cgroup_without_the_controller_is_no_limit(tmp_path):
    mount = tree(tmp_path, "v2", {"": "0-23", "machine.slice": "3-11"})
    assert limits(mount, f"/{SCOPE}/libvirt/emulator") == [("machine.slice", "3-11")]


def test_the_mount_of_a_container_is_a_limit(tmp_path):
    assert limits(tree(tmp_path, "v1", {"": "0-3", "g1": "0-3"}), "/g1") == [("/", "0-3")]


@pytest.mark.parametrize(
    ("partitions", "expected"),
    [
        ({"machine.slice"}, [("machine.slice", "3-23"), (f"{SCOPE}/libvirt", "3-5")]),
        ({"machine.slice", SCOPE}, [(f"{SCOPE}/libvirt", "3-5")]),
    ],
)
def test_a_partition_has_cpus_that_those_above_it_lack(tmp_path, partitions, expected):
    """Above the guest's scope it is a limit. The scope's own is a setting, which the guest's units show."""
    cpusets = {"": "0-2", "machine.slice": "3-23", SCOPE: "3-23", f"{SCOPE}/libvirt": "3-5"}
    mount = tree(tmp_path, "v2", cpusets, partitions)
    assert limits(mount, f"/{SCOPE}/libvirt/emulator") == expected


def test_a_cpu_that_others_partitions_took_is_no_cpu_of_the_root_cgroup(tmp_path):
    mount = tree(tmp_path, "v2", {"": "3-11,15-23", "machine.slice": "3-11,15-23"})
    assert limits(mount, "/machine.slice") == [("/", "3-11,15-23")]


def test_cgroups_that_a_user_nests_without_end_are_no_limit(tmp_path):
    paths = ["/".join("a" * depth) for depth in (1, 64, 65, 70)]
    mount = tree(tmp_path, "v2", dict(zip(("", *paths), ("0-23", "0-9", "0-8", "0-7", "0-6"), strict=True)))
    assert limits(mount, f"/{paths[-1]}") == [(paths[0], "0-9"), (paths[1], "0-8")]


def test_the_parts_of_a_guest_are_those_of_its_upper_folders(tmp_path, monkeypatch):
    write(tmp_path, {"proc/7/cgroup": f"0::/{SCOPE}/libvirt/emulator\n"})
    mount = tree(tmp_path / "mount", "v2", {f"{SCOPE}/libvirt/{name}/deep": "0" for name in ("emulator", "vcpu1")})
    monkeypatch.setattr(cgroups, "MAX_CGROUPS", 3)
    found = [(path.name, part) for path, part in cgroups.parts_of_guest(tmp_path, mount, 7)]
    assert found[:2] == [(SCOPE.partition("/")[2], None), ("libvirt", None)]
    assert sorted(found[2:]) == [("emulator", Part("emulator", None)), ("vcpu1", Part("vcpu", 1))]


def test_no_controller_is_no_limit(tmp_path):
    assert limits(Mount("none", tmp_path), "/machine.slice") == []
