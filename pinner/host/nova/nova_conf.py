"""Nova's configuration on this host, from the first of:

1. the files of pinner's own configuration, as if on nova-compute's command line,
2. nova-compute's process: command line, environment, and files in its mount namespace,
3. the files of a known deployment, while nova-compute does not run."""

import fnmatch
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from pinner.host.kernel.files import Folder, decode
from pinner.host.nova import nova_process
from pinner.host.nova.nova_options import collect, evaluate
from pinner.host.nova.nova_process import PROC, NotBelieved, ProcessRoot, Started, candidates, home_of, started
from pinner.model.errors import Invalid
from pinner.model.guest.nova import NovaConf

ROOT = Path("/")
_MAX_IGNORED = 8
"""Processes reported: any user can start thousands."""


def read(files: Sequence[Path] = (), root: Path = ROOT, proc: Path = PROC) -> NovaConf:
    """``files`` are of pinner's configuration; ``root`` has those of deployments. ``error``: what cannot be read."""
    if files:
        return _of_files(files, root)
    read_, ignored = _of_processes(proc)
    confs = read_ or list(_of_presets(root))
    conf = _one_of(confs) if confs else NovaConf((), is_missing=True)
    return replace(conf, ignored_processes=tuple(ignored[:_MAX_IGNORED]))


class Reader:
    """While nova-compute does not run, for example during a restart, the configuration of its last process counts, with
    its variables and the files of its container. An error is never kept."""

    def __init__(self, files: Sequence[Path] = (), root: Path = ROOT, proc: Path = PROC) -> None:
        self._arguments = (tuple(files), root, proc)
        self._last: NovaConf | None = None

    def __call__(self) -> NovaConf:
        conf = read(*self._arguments)
        if conf.process is not None and not conf.error:
            self._last = conf
        if self._last is None or conf.process is not None:
            return conf
        source = f"{self._last.source}, which has ended"
        return replace(self._last, source=source, ignored_processes=conf.ignored_processes)


def _of_files(files: Sequence[Path], root: Path) -> NovaConf:
    arguments = [("--config-dir" if _is_folder(each) else "--config-file", str(each)) for each in files]
    with nova_process.opened(str(root)) as opened:
        words = tuple(word for pair in arguments for word in pair)
        return _conf(Started(words, home=home_of("nova", opened)), opened, "nova_conf of pinner.conf")


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a name that is too long, or a folder above that this user may not enter
        return False


def _of_presets(root: Path) -> Iterator[NovaConf]:
    with nova_process.opened(str(root)) as opened:
        for preset in presets(opened):
            yield _conf(preset.started, opened, preset.name)


def _of_processes(proc: Path) -> tuple[list[NovaConf], list[str]]:
    confs: list[NovaConf] = []
    ignored: list[str] = []
    for candidate in candidates(proc):
        try:
            with Folder(f"{proc}/{candidate.pid}") as folder, nova_process.opened("root", folder) as root:
                conf = _conf(started(candidate, folder, root), root, f"nova-compute, process {candidate.pid}")
                conf = replace(conf, process=candidate.pid)
        except NotBelieved as error:
            ignored.append(_text(f"process {candidate.pid}: {error}"))
        except PermissionError as error:
            ignored.append(f"process {candidate.pid}: pinner may not examine it ({error.strerror})")
        except (OSError, ValueError, IndexError):  # it has ended
            continue
        else:
            # Another driver (ironic, for instance) manages no guests of this host.
            confs += [conf] if not conf.compute_driver or "libvirt" in conf.compute_driver.lower() else []
    return confs, ignored


def _conf(how: Started, root: ProcessRoot, source: str) -> NovaConf:
    try:
        files = collect(how, root)
    except Invalid as error:
        return _writable(NovaConf((), source=source, error=str(error)))
    variables = tuple(pair for pair in how.environment if pair[0].startswith("OS_") and "__" in pair[0])
    return _writable(replace(evaluate(files, variables), source=source))


def _writable(conf: NovaConf) -> NovaConf:
    """Paths and variables may be any bytes."""
    values: dict[str, Any] = {field.name: getattr(conf, field.name) for field in fields(conf)}
    texts = {name: _text(value) for name, value in values.items() if isinstance(value, str)}
    lists = {name: tuple(map(_text, value)) for name, value in values.items() if isinstance(value, tuple)}
    return NovaConf(**values | texts | lists)


def _text(value: str) -> str:
    return decode(os.fsencode(value))


def _one_of(confs: Sequence[NovaConf]) -> NovaConf:
    first = confs[0]
    if all(_decides(each) == _decides(first) for each in confs):
        return first
    named = " and ".join(each.source for each in confs)
    why = f"they differ: {named}; name the right files in [nova] nova_conf of pinner.conf"
    files = tuple(name for each in confs for name in each.files)
    return NovaConf(files, source=named, error=why, process=first.process)


def _decides(conf: NovaConf) -> NovaConf:
    return replace(conf, files=(), source="", changed=(), process=None)


# The deployments' files: /etc/init.d/nova-compute of Debian's package nova-compute; ansible/roles/nova-cell of
# kolla-ansible; roles/edpm_nova of edpm-ansible (RHOSO: defaults/main.yml, config.json, build_config_volumes.yml);
# openstack_hypervisor/services.py of the snap openstack-hypervisor.
_DEBIAN = "/etc/init.d/nova-compute"
_CONF, _COMPUTE_CONF = "/etc/nova/nova.conf", "/etc/nova/nova-compute.conf"
_KOLLA = "/etc/kolla/nova-compute/nova.conf"
_RHOSO = ("/var/lib/openstack/nova", "/var/lib/openstack/config/nova")
"""The second is used until feature release 4; an update moves the files."""
_OF_RHOSO = (("RHOSO", "*nova*.conf"), ("RHOSO with numbered files", "[0-9]*-*.conf"))
"""Which files the container gets depends on the release; the host does not tell."""
_SNAP = "/var/snap/openstack-hypervisor/common"


@dataclass(frozen=True, slots=True)
class Preset:
    name: str
    started: Started


def presets(root: ProcessRoot) -> Iterator[Preset]:
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
    folder = next((each for each in _RHOSO if root.exists(f"{each}/nova-blank.conf")), None)
    if folder is None:
        return
    try:
        names = sorted(name for name in root.names(folder) if not name.startswith("."))
    except OSError:
        names = []
    for release, pattern in _OF_RHOSO:
        named = ("nova-blank.conf", *fnmatch.filter(names, pattern))
        files = _files(*(f"{folder}/{name}" for name in named))
        yield Preset(release, Started(files, has_default_places=False))


def _files(*paths: str) -> tuple[str, ...]:
    return tuple(word for path in paths for word in ("--config-file", path))


def _if_exists(path: str, root: ProcessRoot) -> tuple[str, ...]:
    return _files(path) if root.exists(path) else ()
