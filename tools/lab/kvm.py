"""A check that this machine really runs KVM guests: /dev/kvm may exist and still be unusable or very slow."""

import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path

_SECONDS = 3
"""A processor that runs the guest natively needs less than one second, including the firmware."""
_DONE = 33
"""QEMU's exit status when the guest writes 16 to its debug port: twice the value plus one."""
_PROBE = (
    bytes.fromhex(
        "66b900000010"  # ecx = 2^28
        "6649"  # count down
        "75fc"  # to 0
        "baf400b010ee"  # the debug port: end
        "f4"
    ).ljust(510, b"\0")
    + b"\x55\xaa"
)
"""A boot sector that counts, and ends its machine."""


@cache
def usable() -> bool:
    """Whether a guest with some work to do ends in time under KVM."""
    if not os.access("/dev/kvm", os.W_OK):
        return False
    with tempfile.TemporaryDirectory(prefix="pinner-lab-") as folder:
        disk = Path(folder) / "probe"
        disk.write_bytes(_PROBE)
        machine = ["qemu-system-x86_64", "-accel", "kvm", "-nodefaults", "-no-user-config", "-display", "none"]
        end = ["-device", "isa-debug-exit,iobase=0xf4,iosize=1"]
        try:
            done = subprocess.run(
                [*machine, *end, "-drive", f"file={disk},format=raw"], capture_output=True, timeout=_SECONDS
            )
        except subprocess.TimeoutExpired:
            return False
    return done.returncode == _DONE
