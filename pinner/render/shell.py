"""A plan as shell commands that an administrator can run by hand."""

import shlex
from collections.abc import Iterable, Iterator
from typing import assert_never

from pinner.model.change import AffinityChange, StateChange, Target, ThreadMask
from pinner.model.cpuset import CpuSet
from pinner.model.plan.plan import Plan
from pinner.model.states import State
from pinner.render import before_and_after, text

_PINS = {"emulator": "emulatorpin", "vcpu": "vcpupin", "iothread": "iothreadpin"}


def render(plan: Plan) -> str:
    """virsh and taskset (util-linux) make the changes live; comments undo them in reverse. Blocked: only comments."""
    lines = [
        "#!/bin/sh",
        _comment(f"pinner {plan.id} for host {plan.host}, strategy {plan.request.strategy}"),
        "# Run it as root on that host. For another libvirt than qemu:///system, export LIBVIRT_DEFAULT_URI first.",
        *(_comment(f"warning: {warning}") for warning in plan.warnings),
    ]
    if plan.worse:
        lines.append(_comment(f"worse than now: {plan.worse}"))
    if plan.blocked:
        lines += [_comment(f"cannot be applied: {plan.blocked}"), *_isolation(plan)]
    elif plan.changes:
        lines += ["set -eu", *_forward(plan), "", "# To undo it:", *_backward(plan)]
    else:
        lines.append(_comment(f"no changes: {text.in_place(plan)}"))
    return "\n".join(lines) + "\n"


def _forward(plan: Plan) -> Iterator[str]:
    for change in plan.changes:
        yield ""
        before, after = before_and_after(change)
        yield _comment(f"{change.target}: {before} -> {after}: {change.reason}")
        match change:
            case AffinityChange():
                commands = _commands(plan, change.target, change.before, change.after)
            case StateChange():
                commands = _state_commands(change.target, change.after)
            case _:
                assert_never(change)
        yield from map(_line, commands)


def _backward(plan: Plan) -> Iterator[str]:
    for change in reversed(plan.changes):
        yield _comment(str(change.target))
        match change:
            case AffinityChange():
                commands = _restoring(plan, change)
            case StateChange():
                commands = _state_commands(change.target, change.before)
            case _:
                assert_never(change)
        yield from map(_comment, commands)


def _restoring(plan: Plan, change: AffinityChange) -> Iterator[str]:
    masks = {thread.cpus for thread in change.before}
    if len(masks) == 1:
        yield from _commands(plan, change.target, change.before, masks.pop())
    else:
        # Threads with different masks: virsh has one pin for all of them, so each thread gets a command of its own.
        yield from (_taskset(thread.tid, thread.cpus) for thread in change.before)


def _state_commands(target: Target, state: State) -> Iterator[str]:
    # Imported here, because few plans change a state.
    from pinner.planning.settings import table

    return table.commands(target, state)


def _commands(plan: Plan, target: Target, threads: Iterable[ThreadMask], cpus: CpuSet) -> Iterator[str]:
    if target.kind in _PINS:
        part = "" if target.part is None else f"{target.part} "
        yield f"virsh {_PINS[target.kind]} {shlex.quote(target.owner)} {part}{cpus} --live"
    elif target.kind == "process" and not _some_stay(plan, target):
        yield _taskset(target.owner, cpus, "--all-tasks ")
    else:
        for thread in threads:
            yield _taskset(thread.tid, cpus)


def _some_stay(plan: Plan, target: Target) -> bool:
    return any(skipped.target == target and skipped.threads for skipped in plan.skipped)


def _taskset(tid: int | str, cpus: CpuSet, scope: str = "") -> str:
    return f"taskset {scope}--cpu-list --pid {cpus} {shlex.quote(str(tid))}"


def _isolation(plan: Plan) -> Iterator[str]:
    needs = plan.isolation
    if needs is None:
        return
    if needs.grub_line:
        yield "# In /etc/default/grub (with all of today's arguments: empty GRUB_CMDLINE_LINUX_DEFAULT), then"
        yield "# update-grub (on some systems grub2-mkconfig -o /boot/grub2/grub.cfg), and reboot:"
        yield _comment(needs.grub_line)
    elif needs.kernel_arguments:
        yield _comment(f"Instead of the same arguments of the kernel's command line: {needs.kernel_arguments}")
    yield _comment(f"Or live. {needs.partition_note}")
    yield from (_comment(command) for command in needs.partition)


def _line(command: str) -> str:
    """A name in a saved snapshot could move a terminal's cursor, or end a comment."""
    return command if command.isprintable() else _comment(f"not written, its name cannot be printed: {command}")


def _comment(text: str) -> str:
    """Owners choose guests' and processes' names: a line break would end the comment, an escape harm the terminal."""
    return "# " + "".join(character if character.isprintable() else "?" for character in text)
