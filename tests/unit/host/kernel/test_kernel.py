import pytest
from support.roots import write

from pinner.host.kernel.kernel import cpuset_mount, read_kernel

V2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n"
V1 = "cgroup /sys/fs/cgroup/cpuset cgroup rw,relatime,cpuset 0 0\n"
GROUP = "sys/fs/cgroup"


@pytest.mark.parametrize(
    ("mounts", "controllers", "version"),
    [
        (V2, "cpuset cpu io\n", "v2"),
        (V2, "cpu io\n", "none"),
        (V2 + V1, "cpu io\n", "v1"),
        (V1, "", "v1"),
        ("cpuset /dev/cpuset cpuset rw 0 0\n", "", "v1"),
        ("cgroup /sys/fs/cgroup/cpu cgroup rw,cpu,cpuacct 0 0\n", "", "none"),
        ("broken\n\n" + V2, "cpuset", "v2"),
        ("", "", "none"),
    ],
)
def test_the_version_of_the_cpuset_controller(tmp_path, mounts, controllers, version):
    write(tmp_path, {"proc/mounts": mounts, f"{GROUP}/cgroup.controllers": controllers})
    assert read_kernel(tmp_path).cgroup == version


def test_a_mount_point_with_a_space(tmp_path):
    write(tmp_path, {"proc/mounts": "none /a\\040b cgroup rw,cpuset 0 0\n"})
    assert cpuset_mount(tmp_path).folder == tmp_path / "a b"


@pytest.mark.parametrize(
    ("release", "mounts", "possible"),
    [
        ("5.14.0-70", V2, False),
        ("5.15.0", V2, True),
        ("6.1.0-13-amd64", V2, True),
        ("10.0", V2, True),
        ("6.1.0", V1, False),
        ("custom", V2, False),
    ],
)
def test_isolated_partitions_need_cgroup_v2_and_linux_5_15(tmp_path, release, mounts, possible):
    write(
        tmp_path, {"proc/mounts": mounts, f"{GROUP}/cgroup.controllers": "cpuset", "proc/sys/kernel/osrelease": release}
    )
    assert read_kernel(tmp_path).partitions is possible


def test_the_release_is_read_from_proc_version_where_osrelease_is_missing(tmp_path):
    write(tmp_path, {"proc/version": "Linux version 5.3.0-rc7 (someone@somewhere) #4 SMP"})
    assert read_kernel(tmp_path).release == "5.3.0-rc7"
    assert read_kernel(tmp_path / "empty").release == ""
