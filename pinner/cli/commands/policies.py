"""pinner policy show | set | delete, and pinner drift."""

from argparse import BooleanOptionalAction, Namespace
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from pinner import codec
from pinner.cli.frame.context import CommandContext, agreed, pick_host, require_answer
from pinner.cli.frame.options import fix_option, host_option, request_options, updated
from pinner.cli.frame.output import Table, cpu_cell, facts, masks, moment, print_json, table
from pinner.cli.frame.parser import CHANGES, Commands, add_command, add_noun, detailed_exitcode
from pinner.cli.show.plantable import left_out, part
from pinner.model.errors import NotFound
from pinner.model.plan.request import Request
from pinner.model.policy import Policy, ShownPolicy
from pinner.model.text import NO_CPU
from pinner.render import counted, visible

if TYPE_CHECKING:
    from pinner.model.policy import Drift, DriftReport, Expected, Repack, Setback
    from pinner.service.protocol import Service

ABOUT = """\
`pinner serve` maintains the policy; it uses a changed policy within seconds.
  observe  report drift (see `pinner drift`)
  propose  also store a plan that ends the drift, for you to apply
  enforce  apply that plan at once; in this mode, rollbacks and plans with
           another request are refused

With --undo-if-worse the server watches the guests for 30 s after each plan
that the policy applies. If they become worse, it rolls the plan back and sets
the mode to propose; `pinner drift` says why.

Options that are not given keep the values of the present policy. The defaults
below are those of a first policy."""


def register_policy(commands: Commands) -> None:
    verbs = add_noun(commands, "policy", "show, set or delete the policy that `pinner serve` maintains on a host")
    show = add_command(
        verbs, "show", show_policy, "show a host's policy", examples=["pinner policy show", "pinner policy show --json"]
    )
    host_option(show)
    _register_set(verbs)
    deleting = add_command(
        verbs,
        "delete",
        delete_policy,
        "delete the policy of a host",
        about="The placement stays as it is; pinner no longer corrects drift.\n"
        "`pinner rollback --all` gives everything back what it had before.",
        asks=True,
        examples=["pinner policy delete", "pinner policy delete --host compute1"],
    )
    host_option(deleting)


def _register_set(verbs: Commands) -> None:
    setting = add_command(
        verbs,
        "set",
        set_policy,
        "set the policy of a host, or change the present policy",
        about=ABOUT,
        asks=True,
        examples=[
            "pinner policy set --strategy numa-local --mode propose",
            "pinner policy set --mode enforce --undo-if-worse --yes",
            "pinner policy set --exclude-guest db1 --exclude-process ceph-osd@3.service",
            "pinner policy set --plan PLAN_ID --mode enforce",
            "pinner policy set --reset --mode observe",
        ],
    )
    host_option(setting)
    setting.add_argument(
        "--mode", choices=("observe", "propose", "enforce"), help="reaction to drift (default: observe)"
    )
    setting.add_argument(
        "--reset", action="store_true", help="use the defaults, not the present policy, for options that are not given"
    )
    setting.add_argument(
        "--plan", metavar="PLAN_ID", help="use the request of this plan, such as `pinner place` made, not the policy's"
    )
    setting.add_argument(
        "--undo-if-worse",
        action=BooleanOptionalAction,
        help="roll back what the policy applied if the guests become worse, and then only propose (default: no)",
    )
    request_options(setting, for_policy=True)
    fix_option(setting)


def register_drift(commands: Commands) -> None:
    drift = add_command(
        commands,
        "drift",
        show_drift,
        "show the drift of a host from its recorded placement, and the cause",
        about="Nothing on the host is changed. If the host has a policy but no recorded\n"
        "placement yet, CPU use is measured first.",
        status={CHANGES: "with --detailed-exitcode: something drifted"},
        examples=["pinner drift", "pinner drift --json", "pinner drift --detailed-exitcode"],
    )
    host_option(drift)
    detailed_exitcode(drift, "if something drifted")


def show_policy(context: CommandContext, arguments: Namespace) -> int:
    with context.open() as pinner:
        host = pick_host(pinner, arguments.host)
        shown = ShownPolicy.of(pinner.policy(host), pinner.setback(host))
    _print(context, host, shown)
    return 0


def set_policy(context: CommandContext, arguments: Namespace) -> int:
    require_answer(yes=arguments.yes)
    with context.open() as pinner:
        host = pick_host(pinner, arguments.host)
        present = None if arguments.reset else _present(pinner, host)
        base = present or Policy()
        if arguments.plan is not None:
            base = replace(base, request=replace(pinner.plan_by_id(arguments.plan).request, rebalance=False))
        wanted = Policy(
            updated(base.request, arguments),
            arguments.mode or base.mode,
            base.undo_if_worse if arguments.undo_if_worse is None else arguments.undo_if_worse,
        )
        if not agreed(f"Set the policy of host {host} to the mode {wanted.mode}?", yes=arguments.yes):
            return 0
        policy = pinner.set_policy(host, wanted, context.caller, None if arguments.reset else _revisions(present))
    _print(context, host, ShownPolicy.of(policy, None))
    return 0


def delete_policy(context: CommandContext, arguments: Namespace) -> int:
    require_answer(yes=arguments.yes)
    with context.open() as pinner:
        host = pick_host(pinner, arguments.host)
        pinner.policy(host)  # before the question: there may be none
        if not agreed(f"Delete the policy of host {host}?", yes=arguments.yes):
            return 0
        pinner.delete_policy(host, context.caller)
    if context.json:
        print_json({"host": host, "deleted": True})
    else:
        context.out.print(visible(f"the policy of host {host} is deleted"), soft_wrap=True)
    return 0


def show_drift(context: CommandContext, arguments: Namespace) -> int:
    with context.open() as pinner:
        report = pinner.drift(pick_host(pinner, arguments.host))
    status = CHANGES if arguments.detailed_exitcode and report.drifts else 0
    if context.json:
        print_json(codec.plain(report))
        return status
    context.out.print(visible(_summary(report)), soft_wrap=True)
    for drawn in (drifts(report), left_out("UNPLACED", report.unplaced)):
        if drawn is not None:
            context.show("", drawn)
    if report.error:
        context.warn(report.error)
    if report.setback:
        context.warn(_setback(report.setback))
    if report.proposed:
        context.inform(f"to end it: pinner apply {report.proposed}")
    if report.repack:
        context.inform(_repack(report.repack))
    return status


def drifts(report: "DriftReport") -> Table | None:
    if not report.drifts:
        return None
    drawn = table("OF", "WHAT", "EXPECTED", "ACTUAL", "CAUSE", "", whole=("EXPECTED", "ACTUAL", "CAUSE"))
    for drift in report.drifts:
        if drift.states is None:
            expected, actual = str(drift.expected), masks(mask.cpus for mask in drift.actual)
        else:
            actual, expected = (str(state) or NO_CPU for state in drift.states)
        is_corrected = report.mode == "enforce" and drift.cause != "guest"
        note = _note(drift, "recurred" if is_corrected else "found")
        drawn.add_row(drift.target.name, part([drift.target]), cpu_cell(expected), cpu_cell(actual), drift.cause, note)
    return drawn


def _note(drift: "Drift", counts: str) -> str:
    """``counts``: what ``times`` counts, unless the drift could not be corrected."""
    notes = [drift.detail] if drift.detail else []
    if drift.times:
        notes.append(f"{'failed' if drift.cause == 'failed' else counts} {counted(drift.times, 'time')}")
    if drift.backoff_until:
        notes.append(f"backoff until {moment(drift.backoff_until)}")
    return "; ".join(notes)


def _repack(repack: "Repack") -> str:
    spread = f"the guests are spread (pressure {repack.pressure:.2f})"
    if repack.plan:
        return f"{spread}; to re-pack them: pinner apply {repack.plan}"
    return f"{spread}; no re-pack is proposed: {visible(repack.why)}"


def _setback(setback: "Setback") -> str:
    since = moment(setback.at)
    return f"the policy proposes and no longer enforces since {since}, because of run {setback.run}: {setback.why}"


def _summary(report: "DriftReport") -> str:
    if not report.placement and report.mode is None:
        return f"host {report.host}: no policy and no recorded placement"
    policy = f"policy {report.mode}" if report.mode else "no policy"
    since = f", as plan {report.placement} placed it" if report.placement else ", no placement recorded yet"
    drift = f"{counted(len(report.drifts), 'target')} drifted" if report.drifts else "no drift"
    return f"host {report.host}: {policy}{since}: {drift}"


def _present(pinner: "Service", host: str) -> Policy | None:
    try:
        return pinner.policy(host)
    except NotFound:
        return None


def _revisions(present: Policy | None) -> "Expected":
    """The revision that the options change: no other caller's change is overwritten."""
    return ("" if present is None else codec.content_hash(present),)


def _print(context: CommandContext, host: str, policy: ShownPolicy) -> None:
    if context.json:
        print_json(codec.plain(policy))
        return
    rows: list[tuple[str, object]] = [("host", host), ("mode", policy.mode), ("undo if worse", policy.undo_if_worse)]
    for field in fields(Request):
        if field.name != "rebalance":
            value = getattr(policy.request, field.name)
            rows.append((field.metadata.get("alias", field.name).replace("_", " "), _shown(value)))
    if policy.setback:
        rows.append(("setback", _setback(policy.setback)))
    context.show(facts(*rows))


def _shown(value: object) -> object:
    match value:
        case tuple():
            return ", ".join(map(str, value)) or "-"
        case dict():
            pairs = (
                f"{name}={each:g}" if isinstance(each, float) else f"{name}={each}" for name, each in value.items()
            )
            return ", ".join(pairs) or "-"
        case None:
            return "-"
    return value
