"""What no plan may do, checked on every strategy's answer, whoever wrote the strategy."""

from collections import Counter
from collections.abc import Iterator
from itertools import combinations

from pinner.model.cpuset import CpuSet
from pinner.model.errors import Invalid
from pinner.model.nova import require_clear
from pinner.model.plan import Roles, Wanted
from pinner.planning.context import Context
from pinner.planning.strategy import Answer


def check(name: str, answer: Answer, context: Context) -> None:
    """Raises NovaConflict where the answer of the strategy ``name`` crosses what Nova owns, and Invalid with the first
    thing that is wrong in it otherwise."""
    require_clear(answer.wanted, context.allocatable.nova, emulators=context.request.nova_emulators)
    for wrong in _wrongs(answer, context):
        raise Invalid("strategy", name, f"a strategy that keeps the rules; its answer does not: {wrong}")


def _wrongs(answer: Answer, context: Context) -> Iterator[str]:
    yield from _roles(answer.roles)
    yield from _targets(answer.wanted, context)
    checked: set[tuple[str, CpuSet]] = set()
    for want in answer.wanted:
        # Thousands of threads share a handful of sets: each is checked once for each kind of target.
        key = (want.target.kind, want.cpus)
        if want.state is None and key not in checked:
            checked.add(key)
            yield from _cpus(want, answer.roles, context)
    yield from _alone(answer.wanted, context)
    for want in answer.wanted:
        if want.target.kind == "partition" and (kept := want.cpus & answer.roles.housekeeping):
            yield f"{want.target} takes CPUs {kept} from housekeeping"


def _roles(roles: Roles) -> Iterator[str]:
    sets = (("housekeeping", roles.housekeeping), ("emulator", roles.emulator), ("vCPU", roles.vcpu))
    for (one, ours), (other, theirs) in combinations(sets, 2):
        if (both := ours & theirs) and not roles.notes:
            yield f"{one} and {other} share CPUs {both}, and no note says why"


def _targets(wanted: tuple[Wanted, ...], context: Context) -> Iterator[str]:
    for target, times in Counter(want.target for want in wanted).items():
        if times > 1:
            yield f"{target} is placed {times} times"
        if target not in context.threads and target not in context.settings:
            yield f"{target} is not there, or not to be moved"


def _cpus(want: Wanted, roles: Roles, context: Context) -> Iterator[str]:
    allocatable = context.allocatable
    allowed = {"process": roles.housekeeping, "vcpu": roles.vcpu}.get(want.target.kind, roles.emulator)
    if not want.cpus:
        yield f"{want.target} has no CPU"
    if outside := want.cpus - allowed:
        yield f"{want.target} is placed on CPUs {outside}, outside the set of its role ({allowed})"
    one_to_one = want.target.kind == "vcpu" and len(want.cpus) == 1
    if forbidden := allocatable.objections(want.cpus, floating=not one_to_one):
        yield f"{want.target} is placed on CPUs that may not be handed out: {'; '.join(forbidden)}"


def _alone(wanted: tuple[Wanted, ...], context: Context) -> Iterator[str]:
    isolated = context.allocatable.isolated
    users: Counter[int] = Counter()
    for cpus, times in Counter(want.cpus for want in wanted if not want.state).items():
        users.update(dict.fromkeys((cpus & isolated).ids, times))
    shared = CpuSet.of(cpu for cpu, times in users.items() if times > 1)
    if shared:
        yield f"isolated CPUs {shared} get several threads each, among which the kernel does not balance"
