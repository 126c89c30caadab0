"""Where deployments keep nova-compute's configuration on the host, for times when nova-compute does not run.

Sources: /etc/init.d/nova-compute of Debian's package nova-compute; ansible/roles/nova-cell of kolla-ansible;
roles/edpm_nova of edpm-ansible (RHOSO); openstack_hypervisor/services.py of the snap openstack-hypervisor.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from pinner.host.nova_process import Started, home_of
from pinner.host.process_root import ProcessRoot

_DEBIAN = "/etc/init.d/nova-compute"
_CONF, _COMPUTE_CONF = "/etc/nova/nova.conf", "/etc/nova/nova-compute.conf"
_KOLLA = "/etc/kolla/nova-compute/nova.conf"
_RHOSO = "/var/lib/openstack/config/nova"
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
    if root.exists(f"{_RHOSO}/nova-blank.conf"):
        yield Preset("RHOSO", Started(_files(*_of_rhoso(root)), has_default_places=False))
    if root.exists(f"{_SNAP}/etc/nova/nova.conf"):
        arguments = (*_files(f"{_SNAP}/etc/nova/nova.conf"), "--config-dir", f"{_SNAP}/etc/nova/nova.conf.d")
        yield Preset("the snap openstack-hypervisor", Started(arguments))


def _of_rhoso(root: ProcessRoot) -> Iterator[str]:
    """The files that the container gets, in the order in which Nova reads them there: *nova*.conf (config.json)."""
    yield f"{_RHOSO}/nova-blank.conf"
    try:
        names = root.names(_RHOSO)
    except OSError:
        return
    for name in sorted(names):
        if "nova" in name and name.endswith(".conf") and not name.startswith("."):
            yield f"{_RHOSO}/{name}"


def _files(*paths: str) -> tuple[str, ...]:
    return tuple(word for path in paths for word in ("--config-file", path))


def _if_exists(path: str, root: ProcessRoot) -> tuple[str, ...]:
    return _files(path) if root.exists(path) else ()
