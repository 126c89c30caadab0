"""A private libvirtd for tests and the demo: it changes nothing of the system's libvirtd and leaves nothing behind.

Needs root, libvirtd, QEMU and util-linux's ``unshare``. The daemon runs in a mount namespace of its own. Where the
right to make one is missing, as in a container, it runs without one, and only one at a time.
"""

import contextlib
import glob
import os
import secrets
import select
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import libvirt_calls
import rights
from libvirt_folders import FOLDERS, InMounts, Linked, Processes, Unusable

EMULATOR = "/usr/bin/qemu-system-x86_64"
CGROUPS = Path("/sys/fs/cgroup")

_START_SECONDS = 60
"""The first start asks QEMU for its capabilities, which takes seconds on a slow machine."""
_STOP_SECONDS = 10


def missing() -> str:
    """The reason why no private libvirtd can run here; empty if it can."""
    if os.geteuid() != 0:
        return "not root"
    lacking = [name for name in ("libvirtd", "virsh", "unshare", EMULATOR) if shutil.which(name, path=_path()) is None]
    return f"not installed: {', '.join(lacking)}" if lacking else ""


@contextlib.contextmanager
def private_libvirtd(folder: Path) -> Iterator[str]:
    """Run a libvirtd below ``folder`` (created here, with a short path because of a socket) and return its URI.

    At the end, also after an exception or Ctrl-C, guests, daemon, empty cgroups and folder are removed. The names of
    guests must be unique on the machine, because cgroups are named after them.
    """
    if why := missing():
        raise Unusable(why)
    stack = contextlib.ExitStack()
    try:
        _start(stack, folder)
        yield uri(folder)
    finally:
        with _undisturbed():
            stack.close()


def uri(folder: Path) -> str:
    """The libvirt URI of the daemon in ``folder``."""
    return f"qemu+unix:///system?socket={folder}/sock/libvirt-sock"


@contextlib.contextmanager
def killed(uri: str) -> Iterator[None]:
    """Kill the daemon of this URI (SIGKILL) for the duration of the context, then start it again; its guests run on."""
    folder = Path(uri.partition("socket=")[2]).parent.parent
    pid = int((folder / "libvirtd.pid").read_text())
    with _folders().again(pid) as (inside, files):
        daemon = os.pidfd_open(pid)
        signal.pidfd_send_signal(daemon, signal.SIGKILL)
        select.select([daemon], [], [], _STOP_SECONDS)
        os.close(daemon)
        try:
            yield
        finally:
            command = [*inside, "env", f"PATH={_path()}", "libvirtd", "--daemon", *_files(folder)]
            subprocess.run(command, check=True, capture_output=True, pass_fds=files)


def guest_xml(
    name: str,
    *,
    kind: str = "qemu",
    vcpus: int = 2,
    plugged: int | None = None,
    memory_mib: int = 64,
    iothreads: int = 1,
    cpuset: str = "",
    extra: str = "",
    devices: str = "",
) -> str:
    """The domain XML of a small diskless guest. ``kind`` is qemu (TCG) or kvm; ``plugged`` is the number of vCPUs at
    the start; ``cpuset`` is that of <vcpu>; ``extra`` is put into <domain>, ``devices`` into <devices>."""
    inside = f" placement='static' cpuset='{cpuset}'" if cpuset else ""
    return (
        f"<domain type='{kind}'><name>{name}</name><memory unit='MiB'>{memory_mib}</memory>"
        f"<vcpu{inside} current='{plugged or vcpus}'>{vcpus}</vcpu><iothreads>{iothreads}</iothreads>{extra}"
        f"<os><type arch='x86_64' machine='pc'>hvm</type></os>"
        f"<devices><emulator>{EMULATOR}</emulator><memballoon model='none'/>{devices}</devices></domain>"
    )


def virsh(uri: str, *arguments: str, stdin: str = "") -> str:
    """Run one virsh command and return its output, without a start of virsh where libvirt_calls knows the command.

    Raises CalledProcessError with the message in ``stderr``.
    """
    if (output := libvirt_calls.run(uri, *arguments)) is not None:
        return output
    command = ["virsh", "-q", "-c", uri, *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=True).stdout


def start_guest(uri: str, xml: str, *, paused: bool = False) -> None:
    """Start a transient guest."""
    libvirt_calls.create(uri, xml, paused=paused)


def define_guest(uri: str, xml: str, *, paused: bool = False) -> None:
    """Define a persistent guest and start it."""
    libvirt_calls.define(uri, xml)
    name = ElementTree.fromstring(xml).findtext("name", "")  # noqa: S314 - the caller's own XML
    virsh(uri, "start", name, *(["--paused"] if paused else []))


def kvm_works(uri: str) -> bool:
    """Whether a KVM guest really runs here; one is started, as it may fail although /dev/kvm exists."""
    name = f"kvm-probe-{os.getpid()}"
    try:
        start_guest(uri, guest_xml(name, kind="kvm", vcpus=1, iothreads=0))
    except subprocess.CalledProcessError:
        return False
    try:
        time.sleep(0.5)
        running = virsh(uri, "domstate", name).strip() == "running"
        used = virsh(uri, "domstats", "--vcpu", name)
        return running and "vcpu.0.time=0\n" not in used
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):
            virsh(uri, "destroy", name)


def _start(stack: contextlib.ExitStack, folder: Path) -> None:
    """Start the daemon; ``stack`` gets a callback that undoes each step."""
    folders = _folders()
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    stack.callback(_remove_cgroups, folder, set(_machine_cgroups()))
    _hold_partitions(stack)
    _write_configuration(folder, folders.settings)
    stack.enter_context(folders.placed(folder))
    command = ["env", f"PATH={_path()}", *folders.command(folder), "libvirtd", *_files(folder)]
    quiet = subprocess.DEVNULL
    daemon = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
    stack.callback(_end, daemon)
    stack.callback(_end_guests, stack.enter_context(folders.guests(folder, daemon)))
    _wait_until_it_answers(daemon, folder)


def _folders() -> InMounts | Linked:
    return Linked() if rights.lacking("mounts") else InMounts()


def _path() -> str:
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def _write_configuration(folder: Path, qemu: str) -> None:
    for name in [*FOLDERS, "sock"]:
        (folder / name).mkdir(parents=True)
    (folder / "etc/qemu.conf").write_text(qemu)
    (folder / "etc/libvirtd.conf").write_text(
        f'unix_sock_dir = "{folder}/sock"\n'
        'auth_unix_rw = "none"\nauth_unix_ro = "none"\n'
        f'host_uuid = "{Path("/proc/sys/kernel/random/uuid").read_text().strip()}"\n'
        f'log_outputs = "2:file:{folder}/libvirtd.log"\n'
    )


def _files(folder: Path) -> list[str]:
    return ["-f", f"{folder}/etc/libvirtd.conf", "-p", f"{folder}/libvirtd.pid"]


def _wait_until_it_answers(daemon: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if daemon.poll() is not None:
            raise Unusable(f"libvirtd ended with status {daemon.returncode}: {_end_of_log(folder)}")
        if (folder / "sock/libvirt-sock").exists():
            with contextlib.suppress(subprocess.CalledProcessError):
                virsh(uri(folder), "domcapabilities")
                return
        time.sleep(0.1)
    raise Unusable(f"libvirtd does not answer after {_START_SECONDS} s: {_end_of_log(folder)}")


def _end_of_log(folder: Path) -> str:
    log = folder / "libvirtd.log"
    return log.read_text()[-400:] if log.exists() else "it wrote no log"


def _end_guests(processes: Processes) -> None:
    """End all processes that the daemon has started, including QEMUs, which do not end with libvirtd."""
    for kind in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + _STOP_SECONDS
        while guests := processes():
            for pid in guests:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, kind)
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)


def _end(daemon: subprocess.Popen[bytes]) -> None:
    daemon.terminate()
    try:
        daemon.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


def _machine_cgroups() -> Iterator[Path]:
    """The cgroups, of every controller, below which libvirt creates one for each guest."""
    for pattern in ("machine*", "*/machine*"):
        yield from map(Path, glob.iglob(f"{CGROUPS}/{pattern}"))


def _hold_partitions(stack: contextlib.ExitStack) -> None:
    """Put an empty cgroup below each cgroup ``machine``, for the time of this daemon.

    All daemons of a machine share these parents, and the one that ends last removes them. Without the empty cgroup
    they could go between libvirt's look at them and its next guest. systemd has its own ``machine.slice``.
    """
    if Path("/run/systemd/system").exists():
        return
    version_2 = (CGROUPS / "cgroup.controllers").exists()
    for root in [CGROUPS] if version_2 else CGROUPS.iterdir():
        held = root / "machine" / f"pinner-{secrets.token_hex(4)}"
        with contextlib.suppress(OSError):  # no right to make cgroups
            held.parent.mkdir(exist_ok=True)
            _inherit_cpuset(held.parent)
            held.mkdir()
            stack.callback(_remove_cgroup, held)


def _remove_cgroup(cgroup: Path) -> None:
    with contextlib.suppress(OSError):  # somebody else has removed it
        cgroup.rmdir()


def _inherit_cpuset(cgroup: Path) -> None:
    """Give a new cpuset of cgroup version 1 its parent's CPUs and memory nodes, as libvirt does where it makes one."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        file = cgroup / name
        if file.exists() and not file.read_text().strip():
            file.write_text((cgroup.parent / name).read_text())


def _remove_cgroups(folder: Path, before: set[Path]) -> None:
    """Remove the cgroups of the daemon's guests, found by name, and their parents: each ``machine``, which libvirt
    makes again when it needs it, and others that did not exist ``before``. The kernel refuses to remove one that is in
    use.
    """
    guests = [glob.escape(log.stem) for log in folder.glob("log/qemu/*.log")]
    for top in list(_machine_cgroups()):
        for cgroup in (found for name in guests for found in glob.iglob(f"{top}/qemu-*-{name}.libvirt-qemu")):
            for path, _, _ in os.walk(cgroup, topdown=False):
                with contextlib.suppress(OSError):
                    Path(path).rmdir()
        if top.name == "machine" or top not in before:
            with contextlib.suppress(OSError):
                top.rmdir()


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Ignore further Ctrl-C and SIGTERM, so that no guest remains; only the main thread can set signal handlers."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {kind: signal.signal(kind, signal.SIG_IGN) for kind in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
