"""make lab: a shell on a lab host with pinner from the working tree. Changes of its disk are lost at the end."""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from lab import machine, topology
from lab.errors import LabError
from lab.host import check, prepare, software
from lab.image import image
from lab.kvm import usable
from lab.machine import Machine


def main() -> int:
    """Boot the requested host with its console at this terminal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("topology", nargs="?", default="two-socket", help=f"{', '.join(topology.known())}, or a .toml")
    parser.add_argument("--kernel", default="", help="arguments for the kernel")
    arguments = parser.parse_args()
    try:
        shape = topology.load(arguments.topology)
        check(shape)
        with tempfile.TemporaryDirectory(prefix="pinner-lab-", dir="/tmp") as name:
            folder = Path(name)
            chosen = Machine(
                shape,
                arguments.kernel,
                1,
                19000,
                folder,
                image(shape.package),
                software(folder),
                usable(),
                interactive=True,
            )
            prepare(chosen)
            print(
                f"lab: booting {shape.name}: {len(shape.positions)} CPUs, {len(shape.nodes)} nodes (Ctrl-a x ends it)"
            )
            return subprocess.run(machine.command(chosen)).returncode
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
