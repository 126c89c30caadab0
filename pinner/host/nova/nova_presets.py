"""Where deployments keep nova-compute's configuration on the host, for times when nova-compute does not run.

Sources: /etc/init.d/nova-compute of Debian's package nova-compute; ansible/roles/nova-cell of kolla-ansible;
roles/edpm_nova of edpm-ansible (RHOSO: defaults/main.yml, config.json, build_config_volumes.yml);
openstack_hypervisor/services.py of the snap openstack-hypervisor.
"""

import fnmatch
from collections.abc import Iterator
from dataclasses import dataclass

from pinner.host.nova.nova_process import Started, home_of
from pinner.host.nova.process_root import ProcessRoot

_DEBIAN = "/etc/init.d/nova-compute"
_CONF, _COMPUTE_CONF = "/etc/nova/nova.conf", "/etc/nova/nova-compute.conf"
_KOLLA = "/etc/kolla/nova-compute/nova.conf"
_RHOSO = ("/var/lib/openstack/nova", "/var/lib/openstack/config/nova")
"""The second folder until feature release 4; an update moves the files to the first one."""
_OF_RHOSO = (("RHOSO", "*nova*.conf"), ("RHOSO with numbered files", "[0-9]*-*.conf"))
"""Which files of the folder the container gets depends on the release, and the host does not tell."""
_SNAP = "/var/snap/openstack-hypervisor/common"


@dataclass(frozen=True, slots=True)
class Preset:
    """A deployment, and how it starts nova-compute."""

    name: str
    started: Started


def found(root: ProcessRoot) -> Iterator[Preset]:
    """The deployments whose configuration exists below the root directory."""
    home = home_of("nova", root)
    if root.exists(_CONF):
        if root.exists(_DEBIAN):
            yield Preset("Debian's package", Started((*_files(_CONF), *_if_exists(_COMPUTE_CONF, root)), home=home))
        else:
            yield Preset("the default places of nova-compute", Started(home=home))
    if root.exists(_KOLLA):
        yield Preset("kolla-ansible", Started(_files(_KOLLA), has_default_places=False))
    yield from _of_rhoso(root)
    if root.exists(f"{_SNAP}/etc/nova/nova.conf"):
        arguments = (*_files(f"{_SNAP}/etc/nova/nova.conf"), "--config-dir", f"{_SNAP}/etc/nova/nova.conf.d")
        yield Preset("the snap openstack-hypervisor", Started(arguments))


def _of_rhoso(root: ProcessRoot) -> Iterator[Preset]:
    """The files that the container gets, in the order in which Nova reads them there."""
    folder = next((each for each in _RHOSO if root.exists(f"{each}/nova-blank.conf")), None)
    if folder is None:
        return
    try:
        names = sorted(name for name in root.names(folder) if not name.startswith("."))
    except OSError:
        names = []
    for release, pattern in _OF_RHOSO:
        found = ("nova-blank.conf", *fnmatch.filter(names, pattern))
        files = _files(*(f"{folder}/{name}" for name in found))
        yield Preset(release, Started(files, has_default_places=False))


def _files(*paths: str) -> tuple[str, ...]:
    return tuple(word for path in paths for word in ("--config-file", path))


def _if_exists(path: str, root: ProcessRoot) -> tuple[str, ...]:
    return _files(path) if root.exists(path) else ()
