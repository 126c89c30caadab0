"""pinner reads Nova's configuration as Nova's own code reads it.

Each variant runs twice, each time in a mount namespace with an /etc of its own: by Nova's code, and as a process with
nova-compute's name, command line and environment, which pinner finds and reads.
"""

import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.nova.nova_references import REFERENCES
from support.nova.nova_unusual import UNUSUAL
from support.nova.nova_variants import BOTH, NOVA, VARIANTS, Variant

from pinner.host.nova import nova_conf
from pinner.model.errors import Invalid
from pinner.model.guest.nova import cpus

pytestmark = pytest.mark.needs("root", "mounts")

REPOSITORY = Path(__file__).parents[3]
TOOL, TABLE = REPOSITORY / "tools/nova_options.py", REPOSITORY / "pinner/host/nova/nova_options.json"
ASLEEP = "import time\nprint('ready', flush=True)\ntime.sleep(600)\n"
PASSWD = "root:x:0:0:root:/etc/root:/bin/sh\nnova:x:64055:64055::/var/lib/nova:/bin/false\n"
MOUNT = 'mount --bind "$0" /etc && cd "$1" && shift && exec "$@"'


@pytest.fixture(scope="module")
def nova(tmp_path_factory):
    """Asks Nova's own code for a variant's sets."""
    pytest.importorskip("nova.conf", reason="needs Nova itself (tox -e nova)")
    log = (tmp_path_factory.mktemp("nova") / "log").open("w+")
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("read_conf.py"))]
    with (
        log,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        assert process.stdout.readline() == "ready\n", Path(log.name).read_text()

        def ask(variant: Variant, etc: Path) -> dict[str, object]:
            request = {"etc": str(etc), "arguments": variant.arguments, "environment": environment(variant)}
            print(json.dumps({**request, "folder": variant.folder}), file=process.stdin, flush=True)
            return json.loads(process.stdout.readline())

        yield ask
        process.stdin.close()


@pytest.fixture
def etc(tmp_path):
    """A function that writes the variant's /etc."""

    def write(variant: Variant) -> Path:
        for path, content in {"passwd": PASSWD, "nova/": "", "root/": "", **variant.files}.items():
            file = tmp_path / "etc" / path
            folder = file if path.endswith("/") else file.parent
            folder.mkdir(parents=True, exist_ok=True)
            if content.startswith("->"):
                file.symlink_to(content[2:])
            elif folder != file:
                file.write_bytes(content.encode(errors="surrogateescape"))
        return tmp_path / "etc"

    return write


def environment(variant: Variant) -> dict[str, str]:
    # A home without files; the process of the test has one that may have some.
    return {"HOME": "/etc/nohome", "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", **variant.environment}


@contextmanager
def nova_compute(variant: Variant, etc: Path, folder: Path):
    """The folder proc of a machine with one process, which says that it is nova-compute."""
    script = folder / "nova-compute"
    script.write_text(ASLEEP)
    command = ["unshare", "--mount", "sh", "-c", MOUNT, etc, variant.folder, "/usr/bin/python3", script]
    with subprocess.Popen(
        [*map(str, command), *variant.arguments], env=environment(variant), stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            proc = folder / "proc"
            proc.mkdir()
            (proc / str(process.pid)).symlink_to(f"/proc/{process.pid}")
            yield proc
        finally:
            process.kill()


ALL = (*VARIANTS, *REFERENCES, *UNUSUAL)


def test_there_are_400_variants_and_more() -> None:
    names = [variant.name for variant in ALL]
    assert len(names) == len(set(names)) >= 400


@pytest.mark.parametrize("variant", ALL, ids=lambda variant: variant.name)
def test_pinner_reads_what_nova_reads(nova, etc, tmp_path, variant: Variant) -> None:
    folder = etc(variant)
    theirs = nova(variant, folder)
    with nova_compute(variant, folder, tmp_path) as proc:
        conf = nova_conf.read(root=tmp_path, proc=proc)
    assert conf.source.startswith("nova-compute, process ")
    try:
        sets = conf.sets()
        ours = {"dedicated": sorted(sets.dedicated), "shared": sorted(sets.shared)}
    except Invalid as error:
        ours = {"refusal": str(error)}
    assert ours.keys() == theirs.keys(), (ours, theirs)
    if "refusal" in ours:
        assert variant.reason, theirs
        assert variant.reason.lower() in str(theirs["refusal"]).lower() or theirs["refusal"].startswith("SystemExit")
        assert variant.reason.lower() in ours["refusal"].lower()
    else:
        assert ours == theirs
        assert not variant.reason


ITSELF = """import json, os, sys, time
from nova import config
from nova.virt import hardware

output = os.dup(1)
config.parse_args(sys.argv)
sets = [sorted(hardware.get_cpu_dedicated_set()), sorted(hardware.get_cpu_shared_set())]
os.write(output, (json.dumps(sets) + "\\n").encode())
time.sleep(600)
"""


def test_pinner_reads_the_process_in_which_nova_has_read(nova, etc, tmp_path) -> None:
    """Nova's code reads the command line, the environment and the files of the same process that pinner reads."""
    folder = etc(Variant("", {NOVA: BOTH, "nova/nova.conf.d/1.conf": "[compute]\ncpu_dedicated_set = 8-9,^9\n"}))
    (tmp_path / "nova-compute").write_text(ITSELF)
    command = ["unshare", "--mount", "sh", "-c", MOUNT, folder, "/", sys.executable, "-W", "ignore"]
    variables = {**environment(Variant("", {})), "OS_COMPUTE__CPU_SHARED_SET": "0-1,5"}
    words = [*map(str, command), str(tmp_path / "nova-compute"), "--config-dir", "/etc/nova/nova.conf.d"]
    with subprocess.Popen(words, env=variables, stdout=subprocess.PIPE, text=True) as process:
        try:
            dedicated, shared = json.loads(process.stdout.readline())
            (tmp_path / "proc").mkdir()
            (tmp_path / f"proc/{process.pid}").symlink_to(f"/proc/{process.pid}")
            sets = nova_conf.read(root=tmp_path, proc=tmp_path / "proc").sets()
        finally:
            process.kill()
    assert (dedicated, shared) == ([8], [0, 1, 5])
    assert (sorted(sets.dedicated), sorted(sets.shared)) == (dedicated, shared)


# Larger numbers make Nova build sets that do not fit into memory.
LISTS = st.lists(st.sampled_from(list("0379-^, +_x\n")), max_size=10).map("".join)
SMALL = LISTS.filter(lambda text: not re.search(r"[\d_]{4}", text))


@given(SMALL)
@settings(max_examples=2000, deadline=None)
def test_lists_are_parsed_as_by_nova(text: str) -> None:
    hardware = pytest.importorskip("nova.virt.hardware", reason="needs Nova itself (tox -e nova)")
    exception = pytest.importorskip("nova.exception")
    try:
        theirs = hardware.parse_cpu_spec(text)
    except exception.Invalid:
        theirs = None
    try:
        ours = set(cpus(text, "cpu_shared_set"))
    except Invalid:
        ours = None
    # Where a list that is not empty names no CPU, Nova's readers of the options refuse it.
    assert ours == (None if text and not theirs else theirs)


def test_pinner_knows_every_option_of_nova(nova) -> None:
    """An option that is missing in the file cannot be named by $ in a CPU list."""
    command = [sys.executable, "-W", "ignore", str(TOOL)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert json.loads(shown) == json.loads(TABLE.read_text())
