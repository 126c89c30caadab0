"""A demonstration of pinner: what hurts guests, a plan, live pinning, figures before and after, an exact rollback.

`make demo` prints about 30 lines, `make demo ARGS=--all` each step; `make demo KEEP=1` leaves the service running.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import rights

from demo import environment
from demo.guest import linux_guest
from demo.linux import NoLinux
from demo.load import other_load, too_busy
from demo.output import Output
from demo.steps import Demo, Packets
from demo.traffic import NoTraffic, traffic

NEEDED_FOR_PACKETS = ("taps", "network_namespaces")
_LOOK_SECONDS = 2.0


@contextmanager
def interruptible() -> Iterator[None]:
    """End the demo on Ctrl-C and SIGTERM by an exception, so that every ``finally`` runs."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    for kind in (signal.SIGINT, signal.SIGTERM):
        signal.signal(kind, stop)
    try:
        yield
    except KeyboardInterrupt:
        print("\ninterrupted: everything was undone", flush=True)
        raise SystemExit(130) from None
    except (NoLinux, NoTraffic) as error:
        raise SystemExit(f"the demo cannot run: {error}") from None


def run_demo(ready: int | None, output: Output) -> None:
    """Set up, run the demo, clean up. With a pipe ``ready`` the service stays, and a byte in the pipe says so."""
    began = time.monotonic()
    output.line("pinner demo: guests under load on this host, placed and put back (ARGS=--all shows each step)")
    busy = too_busy(other_load(_LOOK_SECONDS), os.cpu_count() or 1)
    if busy and not output.shows_all:
        output.line(busy)
        return
    with interruptible(), ExitStack() as stack:
        output.heading("Setup: a libvirtd where none runs, guests, pinner serve, a busy daemon")
        folder = stack.enter_context(environment.scratch())
        uri = stack.enter_context(environment.any_libvirtd(folder, output.detail))
        linux = stack.enter_context(linux_guest(uri, folder, output.detail)) if _may_send_packets(output) else None
        guests = stack.enter_context(environment.guests(uri, folder, output.detail))
        url = stack.enter_context(environment.service(folder, uri, output.detail))
        packets = Packets(linux, stack.enter_context(traffic(linux.tap, output.detail))) if linux else None
        daemon = stack.enter_context(environment.busy_daemon(output.detail))
        demo = Demo(url, guests, daemon, packets, output)
        output.line(f"   {len(demo.guests)} guests and a daemon of 4 threads run on {os.cpu_count()} CPUs")
        stack.callback(demo.undo)
        demo.run()
        output.line(f"   the demo took {time.monotonic() - began:.0f} s")
        if ready is not None:
            _wait_for_signal(url, ready, output)
        output.detail("\nCleanup")
    output.line("   the guests, the daemon, the service and their files are removed")


def _may_send_packets(output: Output) -> bool:
    """Whether a guest can get a tap and a network of its own here. Where not, it is said."""
    if right := rights.lacking(*NEEDED_FOR_PACKETS):
        output.line(
            f"   This machine (a container?) does not let the demo {rights.RIGHTS[right].allows}: {rights.why(right)}."
        )
        output.line("   Guests get QEMU's own network; the demo shows run delay, but no dropped packets and no pings.")
    return not right


def _wait_for_signal(url: str, ready: int, output: Output) -> None:
    pinner = environment.BIN / "pinner"
    output.heading(f"The service continues to run, with the guests and the daemon, at {url}")
    output.line(f"   export PINNER_URL={url}")
    output.line(f"   {pinner} compare")
    output.line(f"   {pinner} apply --strategy shared-pool")
    output.line(f"   {pinner} topology")
    output.line(f"   kill {os.getpid()}      # ends all of them and cleans up")
    os.write(ready, b".")
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    signal.pause()


def run_in_background(output: Output) -> int:
    """Run the demo in a session of its own, whose service continues to run when this process ends."""
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receiver)
        os.setsid()
        run_demo(sender, output)
        return 0
    os.close(sender)
    signal.signal(signal.SIGINT, lambda *_: os.kill(child, signal.SIGTERM))
    if os.read(receiver, 1):
        return 0
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main() -> int:
    """Parse the arguments and run the demo."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the service running; print how to use and end it")
    parser.add_argument("--all", action="store_true", help="print each step; run on a busy machine, too")
    arguments = parser.parse_args()
    output = Output(shows_all=arguments.all)
    if os.geteuid() != 0:
        parser.error("pinning other users' processes and guests needs root: sudo make demo")
    if arguments.keep:
        return run_in_background(output)
    run_demo(None, output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
