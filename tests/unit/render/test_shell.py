"""The plan as commands: their text, and that they do the same as the plan when they are run."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from support.hosts import applied, cpus, guest, interleaved, plain, process, snapshot

from pinner.model.change import StateChange, Target
from pinner.model.cpuset import CpuSet
from pinner.model.kinds import TargetKind
from pinner.model.machine.process import Process, Thread
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.model.states import Coalescing, Governor, GuestCpus, Number, PartitionState, State
from pinner.planning.planner import plan
from pinner.render.shell import render

U1 = "00000000-0000-4000-8000-000000000001"


def commands(script: str) -> list[str]:
    return [line for line in script.splitlines() if line.startswith(("virsh", "taskset"))]


def undo(script: str) -> list[str]:
    return [line.removeprefix("# ") for line in script.splitlines() if line.startswith(("# virsh", "# taskset"))]


def host() -> Snapshot:
    everywhere = cpus("0-31")
    return snapshot(
        plain(32),
        [guest(1, 2, everywhere, iothreads=1, vhost_threads=1)],
        [
            process(300, 40.0, "0-31", "0-31"),
            process(400, 90.0, "0-31", "31", "0-31", name="ovs", reasons=["", "restricted", ""]),
            process(500, 9.0, "0-15", "0-31", name="mixed"),
        ],
    )


def test_the_commands_and_their_undoing() -> None:
    script = render(plan(host(), "s", Request()))
    assert commands(script) == [
        "taskset --all-tasks --cpu-list --pid 0-3 300",
        "taskset --cpu-list --pid 0-3 400",
        "taskset --cpu-list --pid 0-3 402",
        "taskset --all-tasks --cpu-list --pid 0-3 500",
        f"virsh emulatorpin {U1} 4-7 --live",
        "taskset --cpu-list --pid 4-7 11600",
        f"virsh iothreadpin {U1} 1 4-7 --live",
        f"virsh vcpupin {U1} 0 8-30 --live",
        f"virsh vcpupin {U1} 1 8-30 --live",
    ]
    assert undo(script) == [
        f"virsh vcpupin {U1} 1 0-31 --live",
        f"virsh vcpupin {U1} 0 0-31 --live",
        f"virsh iothreadpin {U1} 1 0-31 --live",
        "taskset --cpu-list --pid 0-31 11600",
        f"virsh emulatorpin {U1} 0-31 --live",
        "taskset --cpu-list --pid 0-15 500",
        "taskset --cpu-list --pid 0-31 501",
        "taskset --cpu-list --pid 0-31 400",
        "taskset --cpu-list --pid 0-31 402",
        "taskset --all-tasks --cpu-list --pid 0-31 300",
    ]


def test_every_change_has_its_reason_beside_it() -> None:
    made = plan(host(), "s", Request())
    script = render(made)
    for change in made.changes:
        assert f"# {change.target}: " in script
        assert f"-> {change.after}: {change.reason}" in script
    assert "LIBVIRT_DEFAULT_URI" in script


def obeyed(before: Snapshot, lines: list[str]) -> dict[int, CpuSet]:
    """Thread id to affinity after the commands: what virsh and taskset are documented to do."""
    guests = {guest.uuid: guest for guest in before.guests}
    tasks = {process.pid: [thread.tid for thread in process.threads] for process in before.processes}
    masks: dict[int, CpuSet] = {}
    for line in lines:
        words = shlex.split(line)
        if words[0] == "virsh":
            assert words[-1] == "--live"
            subject = guests[words[2]]
            of = {
                "emulatorpin": lambda _, g=subject: [thread.tid for thread in g.emulator.threads],
                "vcpupin": lambda part, g=subject: [v.thread.tid for v in g.vcpus if v.id == int(part) and v.thread],
                "iothreadpin": lambda part, g=subject: [i.thread.tid for i in g.iothreads if i.id == int(part)],
            }
            tids, text = of[words[1]](words[3]), words[-2]
        else:
            text, pid = words[-2], int(words[-1])
            tids = tasks[pid] if "--all-tasks" in words else [pid]
        assert tids
        masks |= dict.fromkeys(tids, cpus(text))
    return masks


@pytest.mark.parametrize("strategy", ["shared-pool", "numa-local", "isolated"])
def test_the_commands_do_what_the_plan_does(strategy: str) -> None:
    top = interleaved(32, isolated="8-31,40-63" if strategy == "isolated" else "")
    floor = top.online - top.isolated
    before = replace(host(), topology=top, baseline=floor, guests=(guest(1, 2, floor, iothreads=1, vhost_threads=1),))
    made = plan(before, "s", Request(strategy, processes=("ovs",)))
    script = render(made)
    expected = {thread.tid: change.after for change in made.changes for thread in change.before}
    assert expected
    assert obeyed(before, commands(script)) == expected
    prior = {thread.tid: thread.cpus for change in made.changes for thread in change.before}
    assert obeyed(before, undo(script)) == prior
    assert render(plan(applied(before, made, by_hand=True), "s", made.request)).endswith(
        "# no changes: everything is where this plan wants it\n"
    )


def test_a_blocked_plan_has_no_command_but_says_what_to_do() -> None:
    script = render(plan(host(), "s", Request("isolated")))
    assert commands(script) == undo(script) == []
    assert '# GRUB_CMDLINE_LINUX="quiet isolcpus=managed_irq,domain,8-30 nohz_full=8-30 rcu_nocbs=8-30"' in script
    assert "# cannot be applied: CPUs 8-30 are not isolated" in script
    assert "# echo isolated > /sys/fs/cgroup/pinner.partition/cpuset.cpus.partition" in script
    assert all(line.startswith("#") for line in script.splitlines())


@pytest.mark.parametrize("name", ["a\nrm -rf /", "\x1b[2J", "x; reboot", "$(reboot)`reboot`", "a\u2028b\u202e", "\r"])
def test_names_stay_in_their_comments(name: str) -> None:
    hostile = snapshot(
        plain(32), [replace(guest(1, 1, cpus("0-31")), name=name)], [process(300, 9.0, "0-31", name=name)]
    )
    script = render(plan(hostile, "s", Request()))
    assert len(commands(script)) == 3
    assert not re.search(r"[^\x20-\x7e\n]", script)
    for line in script.splitlines():
        assert line in ("", "set -eu") or line.startswith(("#", "virsh ", "taskset "))
    subprocess.run(["sh", "-n"], input=script, text=True, check=True)


EVIL = ("a'; touch ESCAPED; '", "x; touch ESCAPED", "$(touch ESCAPED)", "a\ntouch ESCAPED\n")


@pytest.mark.parametrize("name", EVIL)
@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        ("sysctl", Number(60), Number(1)),
        ("ring", Number(512), Number(4096)),
        ("coalescing", Coalescing(0), Coalescing(50)),
        ("queues", Number(1), Number(8)),
        ("weight", Number(100), Number(1000)),
        ("weight", Number(300), Number(100)),
        ("rps", cpus("0-7"), cpus("0")),
        ("partition", PartitionState("member", cpus("")), PartitionState("isolated", cpus("1"))),
    ],
)
def test_names_in_commands_of_settings_are_words_for_a_shell(
    kind: TargetKind, before: State, after: State, name: str
) -> None:
    require_words(StateChange(Target(kind, name, 0 if kind == "rps" else None, name), before, after, "so"))


@pytest.mark.parametrize("name", EVIL)
def test_the_name_of_a_governor_is_a_word_for_a_shell(name: str) -> None:
    require_words(StateChange(Target("governor", "4", 4, "4"), Governor("powersave"), Governor(name), "so"))


@pytest.mark.parametrize("name", EVIL)
def test_the_name_of_an_interface_in_a_guest_does_not_end_its_comment(name: str) -> None:
    target = Target("guest_rps", f"{U1} {U1} {name} 2", 0, name)
    require_words(StateChange(target, GuestCpus(cpus("")), GuestCpus(cpus("0-1")), "so"))


def test_a_command_has_nothing_that_a_terminal_obeys() -> None:
    change = StateChange(Target("ring", "\x1b[2J 2", None, "\x1b[2J"), Number(512), Number(4096), "so")
    script = render(replace(plan(host(), "s", Request()), changes=(change,)))
    assert all(line.isprintable() for line in script.splitlines())
    assert "ethtool" in script


def require_words(change: StateChange) -> None:
    script = render(replace(plan(host(), "s", Request()), changes=(change,)))
    forward, _, undoing = script.partition("# To undo it:\n")
    assert all(line.startswith("#") for line in undoing.splitlines())
    commands = re.sub("^#.*$", "", forward, flags=re.MULTILINE)
    assert "touch" in forward
    # Without the strings in quotes. In such a string, shlex writes a quote as '"'"'.
    assert "touch" not in re.sub("'[^']*'", "", commands.replace("""'"'"'""", ""))
    subprocess.run(["sh", "-n"], input=script, text=True, check=True)


BUSY = "import threading, time\nfor _ in range(2): threading.Thread(target=time.sleep, args=(60,)).start()"


def threads_of(pid: int) -> dict[int, CpuSet]:
    return {
        int(task.name): CpuSet.of(os.sched_getaffinity(int(task.name))) for task in Path(f"/proc/{pid}/task").iterdir()
    }


@pytest.mark.needs("two_cpus")
@pytest.mark.skipif(not shutil.which("taskset"), reason="needs taskset")
def test_run_for_real_on_a_process_with_threads_of_different_masks() -> None:
    first, second = sorted(os.sched_getaffinity(0))[:2]
    child = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        for _ in range(200):
            if len(threads_of(child.pid)) == 3:
                break
            time.sleep(0.02)
        os.sched_setaffinity(max(threads_of(child.pid)), {second})
        before = threads_of(child.pid)
        threads = tuple(Thread(tid, 1, "busy", mask) for tid, mask in sorted(before.items()))
        busy = Process(child.pid, 1, "busy", "busy", "", False, 90.0, threads)
        made: Plan = plan(
            snapshot(plain(max(first, second) + 1), [], [busy]),
            "s",
            Request(housekeeping=str(first), emulator="auto"),
        )
        script = render(made)
        subprocess.run(["sh"], input=script, text=True, check=True, stdout=subprocess.DEVNULL)
        assert threads_of(child.pid) == dict.fromkeys(before, CpuSet.of([first]))
        subprocess.run(["sh"], input="\n".join(undo(script)), text=True, check=True, stdout=subprocess.DEVNULL)
        assert threads_of(child.pid) == before
    finally:
        child.kill()
        child.wait()
