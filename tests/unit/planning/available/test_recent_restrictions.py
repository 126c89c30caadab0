"""Short-lived processes that pin themselves own no CPU: neither does a plan avoid it, nor does the agent refuse it."""

import pytest
from data.field.busy import pinned_job as job
from support.hosts import cpus, guest, plain, process, snapshot

from pinner.model.errors import Invalid, Refused
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning.admission import Past, identified, require_permitted
from pinner.planning.planner import plan

FLOATING = ["shared-pool", "numa-local"]


def sets(host: Snapshot, strategy: str = "shared-pool"):
    roles = plan(host, "s", Request(strategy)).roles
    return roles.housekeeping, roles.emulator, roles.vcpu


def admit(host: Snapshot) -> None:
    """The plan of the host before the worker, on this host."""
    known, _ = identified(plan(job.QUIET, "s", Request()), host)
    require_permitted(known, host, Past(), migrate_memory=False)


@pytest.mark.parametrize("strategy", FLOATING)
@pytest.mark.parametrize("host", [job.QUIET, job.BUSY])
def test_a_job_that_has_just_pinned_itself_keeps_no_cpu(host: Snapshot, strategy: str) -> None:
    assert sets(host, strategy) == (job.HOUSEKEEPING, job.EMULATOR, job.VCPU)


@pytest.mark.parametrize("strategy", FLOATING)
def test_a_job_that_stays_keeps_its_cpu(strategy: str) -> None:
    assert sets(job.LATER, strategy) == (job.HOUSEKEEPING_LATER, job.EMULATOR_LATER, job.VCPU_LATER)


def test_the_plan_names_the_job_and_leaves_it_where_it_is() -> None:
    made = plan(job.BUSY, "s", Request())
    (told,) = (warning for warning in made.warnings if "are allocated although" in warning)
    assert told == (
        "CPUs 1 are allocated although process python (500) (CPUs 1) are restricted to them: these processes started "
        "less than 60 s before, and not with their service"
    )
    assert {each.target.name for each in made.skipped} == {"ceph-osd", "python"}
    assert "python" not in {change.target.name for change in made.changes}


def test_the_agent_admits_a_plan_although_a_job_has_pinned_itself_since() -> None:
    admit(job.BUSY)
    with pytest.raises(Refused) as refused:
        admit(job.LATER)
    assert refused.value.details["why"].endswith(
        "1 is in the restricted affinity of process python (500) (privileged, and running for 60 s or as "
        "long as its service)"
    )


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"reserves": "configured"}, "(named in [host] affinity_owners)"),
        ({"reserves": "worked"}, "(more than 2 % of one CPU, and running for 60 s or as long as its service)"),
        ({}, "(more than 2 % of one CPU, and running for 60 s or as long as its service)"),
    ],
)
def test_the_reason_has_the_rule(facts: dict[str, str], why: str) -> None:
    host = snapshot(plain(16), [], [process(300, 9.0, "12", reasons=["restricted"], **facts)])
    with pytest.raises(Invalid, match="12 is in the restricted affinity of process daemon") as refused:
        plan(host, "s", Request(housekeeping="0-1,12"))
    assert why in str(refused.value)


def test_of_several_processes_the_one_that_keeps_the_cpu_is_named() -> None:
    """The job has more load, and has just started."""
    daemon = process(300, 5.0, "1", reasons=["restricted"])
    host = snapshot(plain(16), [guest(1, 1, cpus("0-15"))], [job.WORKER, daemon])
    with pytest.raises(Invalid, match=r"process daemon \(300\) and 1 more"):
        plan(host, "s", Request(housekeeping="0-1"))
