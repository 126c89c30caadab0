"""Reads nova.conf with Nova's own code, as nova-compute does when it starts.

Run ``read_conf.py`` as root by an interpreter that has Nova. It reads one JSON object per line from stdin: ``etc`` (the
folder to mount at /etc), ``arguments``, ``environment`` and ``folder`` (the working folder). It prints one object per
line: the sets ``dedicated`` and ``shared``, or the ``refusal``. Each request is a process of its own.
"""

import ctypes
import json
import os
import sys
import traceback

import nova.conf
from nova import config
from nova.virt import hardware
from nova.virt.libvirt.driver import LibvirtDriver

CLONE_NEWNS = 0x20000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000

libc = ctypes.CDLL(None, use_errno=True)


def enter(etc, arguments, environment, folder):
    """Become a process as nova-compute is started, in a mount namespace of its own."""
    mounts = ((b"none", b"/", MS_REC | MS_PRIVATE), (os.fsencode(etc), b"/etc", MS_BIND))
    if libc.unshare(CLONE_NEWNS) or any(libc.mount(what, where, None, flags, None) for what, where, flags in mounts):
        raise OSError(ctypes.get_errno(), "no mount namespace")
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = ["/usr/bin/nova-compute", *arguments]


def read():
    """The sets, after the checks of nova-compute's start."""
    config.parse_args(sys.argv)
    LibvirtDriver._check_cpu_set_configuration(None)
    conf = nova.conf.CONF
    # What nova-compute reads when it starts, and refuses where the value is wrong.
    _ = conf.reserved_host_cpus, conf.notifications.notification_format
    if conf.libvirt.cpu_power_management and conf.libvirt.cpu_power_management_strategy == "governor":
        _ = conf.libvirt.cpu_power_governor_high, conf.libvirt.cpu_power_governor_low
    shared = hardware.get_vcpu_pin_set() or hardware.get_cpu_shared_set() or ()
    return {"dedicated": sorted(hardware.get_cpu_dedicated_set() or ()), "shared": sorted(shared)}


def answer(request, pipe):
    """Write the answer into the pipe. Nothing else reaches stdout."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    try:
        enter(**request)
        found = read()
    except (Exception, SystemExit) as error:  # whatever ends nova-compute is a refusal
        traceback.print_exc()
        found = {"refusal": f"{type(error).__name__}: {error}"}
    os.write(pipe, json.dumps(found).encode())


def main():
    """Answer requests until stdin ends."""
    print("ready", flush=True)
    for line in sys.stdin:
        ours, theirs = os.pipe()
        if not os.fork():
            answer(json.loads(line), theirs)
            os._exit(0)
        os.close(theirs)
        with os.fdopen(ours, "rb") as pipe:
            text = pipe.read().decode()
        os.wait()
        print(text, flush=True)


main()
