"""On a lab host: kills an apply and a rollback of settings at every point, recovers, and compares the settings.

Standard input is a plan as JSON, whose changes have a state. The last line of the output counts the kills, and the runs
by their final state, as JSON.
"""

import json
import sys
import tempfile
from pathlib import Path

from support.kills.kill_environment import Environment, prepared
from support.kills.kills import Work

from pinner import codec
from pinner.host.settings import table
from pinner.model.change import StateChange
from pinner.model.plan.plan import Plan
from pinner.model.states import State

ROOT = Path("/")


def main() -> None:
    """Kill at every point. Raises AssertionError where the host is not as the journal says."""
    plan = codec.load(Plan, sys.stdin.read())
    changes = [change for change in plan.changes if isinstance(change, StateChange)]

    def observe() -> dict[str, State]:
        return {change.target.key: table.state_of(ROOT, change.target) for change in changes}

    def restore() -> None:
        for change in reversed(changes):
            if table.state_of(ROOT, change.target) != change.before:
                table.set_state(ROOT, change.target, change.before)

    with tempfile.TemporaryDirectory() as folder:
        work = Work(Path(folder), "qemu:///system", plan)
        with prepared(Environment(work, observe, restore)) as environment:
            for policy in ("back", "forward"):
                environment.kill_apply(policy)
            environment.kill_rollback()
    print(json.dumps(environment.kills))


if __name__ == "__main__":
    main()
