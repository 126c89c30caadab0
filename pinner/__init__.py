"""pinner keeps libvirt guests, their emulator threads and the host's busy daemons off each other's CPUs."""

import warnings

# oslo's libraries import eventlet where it is installed, without using it; its warnings are useless here.
warnings.filterwarnings("ignore", message=r"\s*Eventlet is deprecated")


def __getattr__(name: str) -> str:
    """``__version__`` is read at its first use: to look it up takes longer than most commands."""
    if name == "__version__":
        from importlib.metadata import version

        return version("pinner")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
