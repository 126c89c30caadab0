"""pinner keeps libvirt guests, their emulator threads and the host's busy daemons off each other's CPUs."""

from importlib.metadata import version

__version__ = version("pinner")
