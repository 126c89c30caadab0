"""Finds the CPUs that Open vSwitch with DPDK uses: the threads that poll, and the masks of its database."""

import re
from collections.abc import Iterable

from pinner.model.cpuset import union
from pinner.model.machine.ovs import OvsDpdk, OvsMasks
from pinner.model.processes.process import Process

_DAEMON = "ovs-vswitchd"
_POLLING = re.compile(r"pmd(?:-c[0-9]+/id:[0-9]*|-?[0-9]+)|>[^/]*/id:[0-9]+", re.ASCII)
"""The names of its polling threads: pmd-c03/id:9 since Open vSwitch 2.12, pmd9 before. The kernel cuts them at 15.
Since 3.2, Open vSwitch cuts the begin itself and writes > instead: >d-c127/id:1000."""


def dpdk(processes: Iterable[Process], masks: OvsMasks) -> OvsDpdk | None:
    """The CPUs of Open vSwitch; None where it has neither polling threads nor masks.

    Any user can run a process of this name with idle threads. So only polling threads count that are pinned to one CPU
    each, in a process that has privileges or whose threads have worked.
    """
    polling = union(
        thread.affinity
        for process in processes
        if process.name == _DAEMON and process.reserves
        for thread in process.threads
        if len(thread.affinity) == 1 and _POLLING.fullmatch(thread.name)
    )
    return OvsDpdk(masks, polling) if polling or masks != OvsMasks() else None
