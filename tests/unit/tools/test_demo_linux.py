"""The Linux of the demo's guest, from packages as Debian 12 and 13 make them."""

import lzma
import subprocess

import pytest
from demo import linux as demo_linux

NET = b"\0depends=failover\0"


def package(folder, files):
    """A package with these files, as text or bytes by path."""
    tree = folder / "tree"
    for path, content in {
        "DEBIAN/control": b"Package: x\nVersion: 1\nArchitecture: all\nMaintainer: x\n",
        **files,
    }.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_bytes(content)
    subprocess.run(["dpkg-deb", "--build", "--root-owner-group", tree, folder / "linux-image-x_1_all.deb"], check=True)


@pytest.fixture(params=["", ".xz"], ids=["Debian 12", "Debian 13, compressed"])
def parts(request, tmp_path, monkeypatch):
    """A kernel that has virtio_pci built in, and the modules virtio_net and failover."""
    modules = "lib/modules/6.1-x"
    packed = lzma.compress if request.param else bytes

    def download(folder):
        package(
            folder,
            {
                "boot/vmlinuz-6.1-x": b"kernel",
                "bin/busybox": b"busybox",
                f"{modules}/modules.builtin": b"kernel/drivers/virtio/virtio_pci.ko\n",
                f"{modules}/kernel/drivers/net/virtio_net.ko{request.param}": packed(NET),
                f"{modules}/kernel/net/core/failover.ko{request.param}": packed(b"\0depends=\0"),
            },
        )

    monkeypatch.setattr(demo_linux, "_CACHE", tmp_path / "cache")
    monkeypatch.setattr(demo_linux, "_download", download)


def test_the_guest_loads_a_module_after_those_that_it_needs(parts, tmp_path):
    demo_linux.linux(tmp_path)
    init = (tmp_path / "initrd/init").read_text()
    assert [line for line in init.splitlines() if "insmod" in line] == [
        "insmod /modules/failover.ko",
        "insmod /modules/virtio_net.ko",
    ]
    assert (tmp_path / "initrd/modules/virtio_net.ko").read_bytes() == NET


def test_a_module_that_the_kernel_does_not_have_is_an_error(parts, tmp_path):
    with pytest.raises(demo_linux.NoLinux, match="the kernel has no module virtio_console"):
        demo_linux.linux(tmp_path, modules=["virtio_console"])
