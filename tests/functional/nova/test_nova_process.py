"""Which processes pinner believes to be nova-compute, and which files it opens for them. All processes are real."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import takewhile
from pathlib import Path

import pytest

from pinner import codec
from pinner.host.kernel.files import Folder
from pinner.host.nova import nova_conf, nova_process
from pinner.model.guest.nova import NovaConf

pytestmark = pytest.mark.needs("root", "mounts")

NOBODY, NOVA = 65534, 64055
PYTHON = "/usr/bin/python3"
ASLEEP = "import os, time\nos.write(1, b'ready')\ntime.sleep(600)\n"
PASSWD = f"root:x:0:0:root:/root:/bin/sh\nnova:x:{NOVA}:{NOVA}::/var/lib/nova:/bin/false\nweb:x:{NOBODY}:1::/:/bin/sh\n"
BOTH = "[compute]\ncpu_dedicated_set = 4-7\ncpu_shared_set = 0-3\n"
MOUNT = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc && exec "$@"']


class Machine:
    """A folder /proc with the processes that a test starts, an /etc for their mount namespace, and a script."""

    def __init__(self, folder: Path, undo: ExitStack) -> None:
        self.folder, self.undo = folder, undo
        self.etc, self.proc, self.script = folder / "etc", folder / "proc", folder / "bin/nova-compute"
        for path in (self.etc / "nova", self.proc, self.script.parent):
            path.mkdir(parents=True)
        (self.etc / "passwd").write_text(PASSWD)
        (self.etc / "nova/nova.conf").write_text(BOTH)
        self.script.write_text(ASLEEP)
        # Other users read the script and the files; pytest's folders are closed to them.
        for each in (folder, *takewhile(lambda path: path != Path(tempfile.gettempdir()), folder.parents)):
            each.chmod(0o755)

    def start(self, *command: object, uid: int = 0, inside: tuple[str, ...] | None = None) -> int:
        """Start a process, which ends with the test, in a mount namespace with ``etc``. Returns its id."""
        outer = [*MOUNT, str(self.etc)] if inside is None else inside
        inner = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"] if uid else []
        words = [*outer, *inner, *map(str, command or (PYTHON, self.script))]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, env={"PATH": os.environ["PATH"]})
        self.undo.enter_context(ended(process))
        assert process.stdout is not None
        assert process.stdout.read(5) == b"ready"
        (self.proc / str(process.pid)).symlink_to(f"/proc/{process.pid}")
        return process.pid

    def read(self) -> NovaConf:
        return nova_conf.read(root=self.folder / "nowhere", proc=self.proc)


@contextmanager
def ended(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    try:
        yield
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def machine(tmp_path):
    (tmp_path / "nowhere").mkdir()
    with ExitStack() as undo:
        yield Machine(tmp_path, undo)


@pytest.mark.parametrize("uid", [0, NOVA])
def test_a_process_of_root_or_nova_is_believed(machine, uid):
    pid = machine.start(uid=uid)
    found = machine.read()
    assert (found.source, found.files) == (f"nova-compute, process {pid}", ("/etc/nova/nova.conf",))
    assert (found.dedicated, found.shared, found.ignored_processes) == ("4-7", "0-3", ())


def test_options_of_python_come_before_the_script(machine):
    machine.start(PYTHON, "-s", "-W", "ignore", machine.script, "--config-file", "/etc/nova/nova.conf")
    assert machine.read().dedicated == "4-7"


# env(1) cannot name a variable twice.
TWICE = """import os, ctypes
words, variables = ({words!r}, {variables!r})
strings = lambda found: (ctypes.c_char_p * (len(found) + 1))(*[each.encode() for each in found], None)
ctypes.CDLL(None).execve(words[0].encode(), strings(words), strings(variables))
"""


def start_with(machine, *variables):
    words = (PYTHON, str(machine.script))
    machine.start(PYTHON, "-c", TWICE.format(words=words, variables=variables))


def test_of_two_variables_of_one_name_the_first_counts(machine):
    """os.environ of nova-compute has only the first one."""
    machine.script.write_text("import os\nassert os.environ['OS_COMPUTE__CPU_DEDICATED_SET'] == '5'\n" + ASLEEP)
    start_with(machine, "OS_COMPUTE__CPU_DEDICATED_SET=5", "OS_COMPUTE__CPU_DEDICATED_SET=6")
    assert machine.read().dedicated == "5"


def test_an_empty_home_is_the_root_directory(machine):
    machine.script.write_text("import os\nassert os.path.expanduser('~/etc') == '/etc'\n" + ASLEEP)
    start_with(machine, "HOME=")
    (pid,) = (path.name for path in machine.proc.iterdir())
    with Folder(f"{machine.proc}/{pid}") as folder, nova_process.opened("root", folder) as root:
        (candidate,) = nova_process.candidates(machine.proc)
        assert nova_process.started(candidate, folder, root).home == "/"


def test_a_host_process_of_another_user_is_not_believed(machine):
    pid = machine.start(uid=NOBODY)
    found = machine.read()
    assert found.is_missing
    assert found.ignored_processes == (f"process {pid}: its user is web, and neither root nor nova",)


def test_a_user_who_names_himself_nova_is_not_believed(machine):
    """A passwd file that its user can write proves nothing."""
    os.chown(machine.etc / "passwd", NOBODY, NOBODY)
    (machine.etc / "passwd").write_text(f"nova:x:{NOBODY}:1::/:/bin/sh\n")
    pid = machine.start(uid=NOBODY)
    assert machine.read().ignored_processes == (f"process {pid}: its user is {NOBODY}, and neither root nor nova",)


def test_the_root_of_another_user_namespace_is_not_believed(machine):
    inside = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "unshare", "--user",
              "--map-root-user", "--mount")  # fmt: skip
    pid = machine.start(inside=inside)
    assert machine.read().ignored_processes == (f"process {pid}: it is in a user namespace of its own",)


@pytest.mark.parametrize("change", [lambda path: os.chown(path, NOBODY, 0), lambda path: path.chmod(0o775)])
def test_a_script_that_another_user_can_write_is_not_believed(machine, change):
    change(machine.script)
    pid = machine.start()
    assert machine.read().ignored_processes == (f"process {pid}: its script is not a file that only root can write",)


def test_a_program_that_is_not_python_is_not_believed(machine):
    sleep = machine.folder / "sleep"
    shutil.copy(sys.executable, sleep)
    pid = machine.start(sleep, machine.script)
    assert machine.read().ignored_processes == (f"process {pid}: its program is not Python",)


@pytest.mark.parametrize("name", ["nova-api", "nova-computer", "my-nova-compute"])
def test_other_programs_are_no_candidates(machine, name):
    other = machine.script.with_name(name)
    other.write_text(ASLEEP)
    machine.start(PYTHON, other, "nova-compute")
    assert machine.read() == NovaConf((), is_missing=True)


def test_a_link_leads_to_a_file_of_the_process_and_not_of_the_host(machine, tmp_path):
    """The link's target exists on the host only."""
    outside = tmp_path / "outside.conf"
    outside.write_text(BOTH)
    root = tmp_path / "root"
    copy_python(root)
    (root / "etc/nova").mkdir(parents=True)
    (root / "etc/passwd").write_text(PASSWD)
    (root / "etc/nova/nova.conf").symlink_to(outside)
    for up in ("../" * 40, "/"):
        (root / "etc/nova/nova-compute.conf").unlink(missing_ok=True)
        (root / "etc/nova/nova-compute.conf").symlink_to(f"{up}{outside}")
    machine.start("/usr/bin/python3", "/nova-compute", inside=("chroot", str(root)))
    found = machine.read()
    assert (found.files, found.dedicated, found.error) == ((), "", "")
    (root / "etc/nova/nova.conf").unlink()
    (root / "etc/nova/nova.conf").symlink_to("/../../etc/real.conf")
    (root / "etc/real.conf").write_text("[compute]\ncpu_dedicated_set = 9\n")
    assert machine.read().dedicated == "9"


def copy_python(root: Path) -> None:
    """A root directory with Python, for chroot."""
    needed = subprocess.run(["ldd", PYTHON], capture_output=True, text=True, check=True).stdout
    libraries = [word for word in needed.split() if word.startswith("/")]
    version = f"python3.{sys.version_info.minor}"
    for path in (PYTHON, *libraries):
        target = root / path[1:]
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(path).resolve(), target)
    shutil.copytree(
        f"/usr/lib/{version}", root / f"usr/lib/{version}", ignore=shutil.ignore_patterns("*dist*", "test*")
    )
    (root / "nova-compute").write_text(ASLEEP)


def test_a_pipe_blocks_nobody(machine):
    conf = machine.etc / "nova/nova.conf"
    conf.unlink()
    os.mkfifo(conf)
    machine.start()
    assert "'/etc/nova/nova.conf' is not valid: a regular file" in machine.read().error


def test_a_file_without_end_is_refused(machine):
    with (machine.etc / "nova/nova.conf").open("wb") as file:
        file.truncate(1 << 30)
    machine.start()
    assert "a file of at most 1048576 bytes" in machine.read().error


def test_bytes_that_are_no_text_are_escaped(machine):
    """A snapshot is written as JSON."""
    name = os.fsdecode(b"/etc/\xff.conf")
    machine.start(PYTHON, machine.script, "--config-file", name)
    assert machine.read().error.count(r"\xff.conf") == 1
    codec.dump(machine.read())
    (machine.etc / name[5:]).write_text(BOTH)
    found = machine.read()
    assert (found.files, found.dedicated) == ((r"/etc/\xff.conf",), "4-7")


def test_thousands_of_false_processes_are_not_all_reported(machine):
    for _ in range(10):
        machine.start(uid=NOBODY)
    machine.start()
    assert len(machine.read().ignored_processes) == 8
    assert machine.read().dedicated == "4-7"


def test_two_processes_must_give_the_same_sets(machine):
    machine.start()
    machine.start()
    assert machine.read().dedicated == "4-7"
    (machine.etc / "other.conf").write_text("[compute]\ncpu_dedicated_set = 8\n")
    last = machine.start(PYTHON, machine.script, "--config-file=/etc/other.conf")
    error = machine.read().error
    assert f"nova-compute, process {last}" in error
    assert "nova_conf of pinner.conf" in error


def test_a_process_with_another_driver_does_not_count(machine):
    (machine.etc / "ironic.conf").write_text("[DEFAULT]\ncompute_driver = ironic.IronicDriver\n")
    machine.start()
    machine.start(PYTHON, machine.script, "--config-file=/etc/ironic.conf")
    assert (machine.read().dedicated, machine.read().error) == ("4-7", "")


def test_other_sources_of_options_are_refused(machine):
    """One of oslo.config's drivers fetches a URL, and pinner's agent is root."""
    text = "[DEFAULT]\nconfig_source = x\n[x]\ndriver = remote_file\nuri = http://127.0.0.1:9/nova.conf\n"
    (machine.etc / "nova/nova.conf").write_text(text)
    machine.start()
    assert "config_source" in machine.read().error


def test_the_files_of_pinners_own_configuration_win(machine, tmp_path):
    machine.start()
    (tmp_path / "mine.conf").write_text("[compute]\ncpu_dedicated_set = 9\n")
    found = nova_conf.read([tmp_path / "mine.conf"], proc=machine.proc)
    assert (found.dedicated, found.source) == ("9", "nova_conf of pinner.conf")


def test_an_ended_process_leaves_the_files_of_the_deployment(machine):
    root = machine.folder / "nowhere"
    (root / "etc/kolla/nova-compute").mkdir(parents=True)
    (root / "etc/kolla/nova-compute/nova.conf").write_text("[compute]\ncpu_dedicated_set = 8\n")
    pid = machine.start()
    assert machine.read().dedicated == "4-7"
    (machine.proc / str(pid)).unlink()
    assert (machine.read().dedicated, machine.read().source) == ("8", "kolla-ansible")


def test_a_restart_of_nova_changes_nothing(machine):
    """Its environment and its mounts are gone for a few seconds, and its guests are as before."""
    read = nova_conf.Reader(root=machine.folder / "nowhere", proc=machine.proc)
    assert read().is_missing
    pid = machine.start()
    assert read().dedicated == "4-7"
    (machine.proc / str(pid)).unlink()
    assert (read().dedicated, read().source) == ("4-7", f"nova-compute, process {pid}, which has ended")
    (machine.etc / "nova/nova.conf").write_text("[compute]\ncpu_dedicated_set = 9\n")
    assert read().dedicated == "4-7"
    again = machine.start()
    assert (read().dedicated, read().source) == ("9", f"nova-compute, process {again}")


def test_a_file_that_changed_after_the_start_is_named(machine):
    machine.start()
    assert machine.read().changed == ()
    later = time.time() + 5
    os.utime(machine.etc / "nova/nova.conf", (later, later))
    assert machine.read().changed == ("/etc/nova/nova.conf",)
