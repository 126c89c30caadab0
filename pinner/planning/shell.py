"""A plan as the commands that a careful administrator would type."""

import shlex
from collections.abc import Iterable, Iterator

from pinner.model.change import Change, Target, ThreadMask
from pinner.model.cpuset import CpuSet
from pinner.model.plan import Plan
from pinner.planning import partitions
from pinner.planning.processes import thread_label

_PINS = {"emulator": "emulatorpin", "vcpu": "vcpupin", "iothread": "iothreadpin"}


def render(plan: Plan) -> str:
    """A shell script of virsh and taskset (util-linux) commands that makes the plan's changes live, then, as comments,
    the commands that take them back, last change first. A blocked plan gives comments only."""
    lines = [
        "#!/bin/sh",
        _comment(f"pinner {plan.id} for host {plan.host}, strategy {plan.request.strategy}"),
        "# Run it as root on that host. For another libvirt than qemu:///system, export LIBVIRT_DEFAULT_URI first.",
        *(_comment(f"warning: {warning}") for warning in plan.warnings),
    ]
    if plan.blocked:
        lines += [_comment(f"cannot be applied: {plan.blocked}"), *_isolation(plan)]
    elif plan.changes:
        lines += ["set -eu", *_forward(plan), "", "# To take it back:", *_backward(plan)]
    else:
        lines.append("# Nothing to do.")
    return "\n".join(lines) + "\n"


def _forward(plan: Plan) -> Iterator[str]:
    for change in plan.changes:
        yield ""
        yield _comment(f"{change.target}: {_before(change)} -> {change.goal}: {change.reason}")
        if change.states[1]:
            yield from partitions.commands(change.target, change.states[1])
        else:
            yield from _commands(plan, change.target, change.before, change.after)


def _backward(plan: Plan) -> Iterator[str]:
    for change in reversed(plan.changes):
        masks = {thread.cpus for thread in change.before}
        commands: Iterable[str]
        if change.states[0]:
            commands = partitions.commands(change.target, change.states[0])
        elif len(masks) == 1:
            commands = _commands(plan, change.target, change.before, masks.pop())
        else:
            # Threads that differed: virsh has one pin for all of them, so each gets its own mask back by itself.
            commands = (_taskset(thread.tid, thread.cpus) for thread in change.before)
        yield _comment(str(change.target))
        yield from (f"# {command}" for command in commands)


def _commands(plan: Plan, target: Target, threads: Iterable[ThreadMask], cpus: CpuSet) -> Iterator[str]:
    """Those that give all the threads of a target one mask."""
    if target.kind in _PINS:
        part = "" if target.part is None else f"{target.part} "
        yield f"virsh {_PINS[target.kind]} {shlex.quote(target.owner)} {part}{cpus} --live"
    elif target.kind == "process" and not _some_stay(plan, target):
        yield _taskset(target.owner, cpus, "--all-tasks ")
    else:
        for thread in threads:
            yield _taskset(thread.tid, cpus)


def _some_stay(plan: Plan, target: Target) -> bool:
    label = thread_label(target, "")
    return any(left.name.startswith(label) for left in plan.skipped)


def _taskset(tid: int | str, cpus: CpuSet, scope: str = "") -> str:
    return f"taskset {scope}--cpu-list --pid {cpus} {shlex.quote(str(tid))}"


def _before(change: Change) -> str:
    return change.states[0] or " or ".join(sorted({str(thread.cpus) for thread in change.before}))


def _isolation(plan: Plan) -> Iterator[str]:
    needs = plan.isolation
    if needs is None:
        return
    yield "# In /etc/default/grub (it holds all of today's arguments: empty GRUB_CMDLINE_LINUX_DEFAULT), then"
    yield "# update-grub (on some systems grub2-mkconfig -o /boot/grub2/grub.cfg), and reboot:"
    yield _comment(needs.grub_line)
    yield _comment(f"Or live. {needs.partition_note}")
    yield from (_comment(command) for command in needs.partition)


def _comment(text: str) -> str:
    """Names are whatever a guest's or process's owner chose: a line break would end the comment, an escape sequence
    could rewrite the terminal."""
    return "# " + "".join(character if character.isprintable() else "?" for character in text)
