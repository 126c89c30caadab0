"""The files of known deployments, for times when nova-compute does not run."""

from pathlib import Path

import pytest

from pinner.host.nova import nova_conf
from pinner.model.guest.nova import NovaConf

SNAP = "var/snap/openstack-hypervisor/common/etc/nova"
RHOSO = "var/lib/openstack/nova"
OLD_RHOSO = "var/lib/openstack/config/nova"


def one(cpus: int) -> str:
    return f"[compute]\ncpu_dedicated_set = {cpus}\n"


@pytest.fixture
def read(tmp_path):
    def read(files: dict[str, str]) -> NovaConf:
        for path, text in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        (tmp_path / "proc").mkdir(exist_ok=True)
        return nova_conf.read(root=tmp_path, proc=tmp_path / "proc")

    return read


@pytest.mark.parametrize(
    ("files", "source", "dedicated"),
    [
        ({"etc/nova/nova.conf": one(1)}, "the default places of nova-compute", "1"),
        (
            {"etc/nova/nova.conf": one(1), "etc/nova/nova.conf.d/1.conf": one(2)},
            "the default places of nova-compute",
            "2",
        ),
        (
            {
                "etc/init.d/nova-compute": "",
                "etc/nova/nova.conf": one(1),
                "etc/nova/nova-compute.conf": one(3),
                "etc/nova/nova.conf.d/1.conf": one(2),
            },
            "Debian's package",
            "3",
        ),
        (
            {"etc/kolla/nova-compute/nova.conf": one(1), "etc/nova/nova.conf.d/1.conf": one(2)},
            "kolla-ansible",
            "1",
        ),
        (
            {
                f"{RHOSO}/nova-blank.conf": "",
                f"{RHOSO}/01-nova.conf": one(1),
                f"{RHOSO}/25-nova-extra.conf": one(2),
                f"{RHOSO}/provider.conf": one(3),
                f"{RHOSO}/.26-nova.conf": one(3),
                f"{RHOSO}/config.json": "{}",
                "etc/nova/nova.conf.d/99.conf": one(4),
            },
            "RHOSO",
            "2",
        ),
        # Until feature release 4. An update moves the folder.
        ({f"{OLD_RHOSO}/nova-blank.conf": "", f"{OLD_RHOSO}/25-nova.conf": one(2)}, "RHOSO", "2"),
        (
            {
                f"{OLD_RHOSO}/nova-blank.conf": "",
                f"{OLD_RHOSO}/25-nova.conf": one(2),
                f"{RHOSO}/nova-blank.conf": "",
                f"{RHOSO}/25-nova.conf": one(3),
            },
            "RHOSO",
            "3",
        ),
        ({f"{SNAP}/nova.conf": one(1), f"{SNAP}/nova.conf.d/1.conf": one(2)}, "the snap openstack-hypervisor", "2"),
    ],
)
def test_the_files_of_a_deployment_are_read(read, files, source, dedicated) -> None:
    found = read(files)
    assert (found.source, found.dedicated, found.error) == (source, dedicated, "")


def test_two_deployments_with_different_sets_are_an_error(read) -> None:
    kolla = {"etc/kolla/nova-compute/nova.conf": one(1)}
    assert read({**kolla, "etc/nova/nova.conf": one(1)}).error == ""
    error = read({**kolla, "etc/nova/nova.conf": one(2)}).error
    assert error == (
        "they differ: the default places of nova-compute and kolla-ansible; name the right files in [nova] nova_conf "
        "of pinner.conf"
    )


@pytest.mark.parametrize("name", ["25-cpus.conf", "nova-extra.conf"])
def test_a_file_that_only_some_releases_of_rhoso_give_to_the_container_is_an_error(read, name) -> None:
    """Older releases give it the files *nova*.conf, newer ones those whose name begins with a number and has a dash."""
    files = {f"{RHOSO}/nova-blank.conf": "", f"{RHOSO}/01-nova.conf": one(1)}
    assert read({**files, f"{RHOSO}/{name}": "[libvirt]\nvirt_type = kvm\n"}).dedicated == "1"
    found = read({**files, f"{RHOSO}/{name}": one(2)})
    assert found.error.startswith("they differ: RHOSO and RHOSO with numbered files")


def test_a_folder_of_an_own_configuration_is_read_like_config_dir(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/1.conf").write_text(one(1))
    found = nova_conf.read([tmp_path / "d"], root=tmp_path / "d")
    assert found.error.startswith("nova.conf:")  # the root of a path is the root of the machine
    assert nova_conf.read([tmp_path / "d"]).dedicated == "1"
