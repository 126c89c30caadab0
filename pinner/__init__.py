"""pinner keeps libvirt guests, their emulator threads and the host's busy daemons off each other's CPUs."""

import warnings
from importlib.metadata import version

# oslo's libraries import eventlet where it is installed, without using it; its warnings are useless here.
warnings.filterwarnings("ignore", message=r"\s*Eventlet is deprecated")

__version__ = version("pinner")
