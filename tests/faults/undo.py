"""Rollbacks of one run and of all runs, and what the host must be after them."""

from collections import Counter
from typing import Any

from faults.environment import Environment, Violation


def undo(environment: Environment, run: dict[str, Any], counts: Counter[str]) -> bool:
    """Roll back a run; the rollback must be complete where nothing has disturbed the host since the run. A run that
    changed nothing has nothing to roll back. Returns False where a later run could not be undone whole, so that only
    the rollback of all runs undoes this one."""
    if not environment.server.changes(run["id"]):
        return True
    status, begun = environment.post("runs", run["id"], "rollback")
    if status == 409:
        counts["refused"] += 1
        if "in place; roll back all runs" in begun["error"]["message"]:
            return False
        if environment.mode != "enforce":
            raise Violation("refused", f"the rollback of a run in state {run['state']} was refused: {begun}")
        return True
    ended = environment.wait_ended(begun["id"])
    counts[f"rollbacks {ended['state']}"] += 1
    if ended["state"] == "rolled_back_partly" and not ended["error"]:
        raise Violation("unreported", f"the rollback does not name the changes that were not undone: {ended}")
    undisturbed = environment.clock.real(run["started_at"]) > environment.disturbed
    if ended["state"] != "rolled_back" and (undisturbed or ended["state"] != "rolled_back_partly"):
        raise Violation("rollback", f"the rollback ended {ended['state']}: {ended['error']}")
    return True


def undo_all(environment: Environment, counts: Counter[str]) -> bool:
    """Delete the policy and roll all runs back; returns whether there was anything to undo."""
    answer = environment.server.http.delete(f"/hosts/{environment.server.host}/policy")
    assert answer.status_code in (204, 404), answer.text
    environment.mode = ""
    status, begun = environment.post("hosts", environment.server.host, "rollback")
    if status == 409:
        return False
    ended = environment.wait_ended(begun["id"])
    counts[f"rollbacks of all runs {ended['state']}"] += 1
    if ended["state"] not in ("rolled_back", "rolled_back_partly"):
        raise Violation("rollback", f"the rollback of all runs ended {ended['state']}: {ended['error']}")
    environment.mark_disturbed()
    check_as_at_start(environment)
    return True


def check_as_at_start(environment: Environment) -> None:
    """Raise Violation for a thread whose mask is neither the initial one, nor one that another program set."""
    inherited = {((name, "thread"), pid): mask for name, pid, mask in environment.bystanders.children()}
    for (part, tid), mask in (environment.threads() | inherited).items():
        external = {move.cpus for move in environment.external_moves if move.part == part}
        if mask != environment.initial_masks[part] and mask not in external:
            what = f"{' '.join(part)}, thread {tid}, is on {mask}; it was on {environment.initial_masks[part]}"
            raise Violation("not as at the start", f"{what}, and other programs put it on {sorted(external)}")
