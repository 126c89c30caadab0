#!/usr/bin/env python3
"""Writes the table of roles into docs/rest.md, as the rules of pinner/api/access/policies.py decide."""

from collections.abc import Iterator
from pathlib import Path

from oslo_config.cfg import ConfigOpts
from oslo_policy.policy import Enforcer, Rules

from pinner.api.access.policies import list_rules
from pinner.model.run.token import ROLES
from tables.document_table import with_table

DOCUMENT = Path(__file__).parents[2] / "docs/rest.md"
_BEGIN = "<!-- table of roles: `make roles` writes it -->\n"


def expected(document: str) -> str:
    """The document with the table of the rules' defaults."""
    return with_table(document, _BEGIN, _table())


def _table() -> Iterator[str]:
    enforcer = Enforcer(ConfigOpts(), rules=Rules({rule.name: rule.check for rule in list_rules()}), use_conf=False)
    yield f"| request | does | {' | '.join(f'`{role}`' for role in ROLES)} |"
    yield "|---|---|" + "---|" * len(ROLES)
    for rule in list_rules():
        for request in getattr(rule, "operations", ()):
            may = (enforcer.enforce(rule.name, {"host": ""}, {"roles": [role]}) for role in ROLES)
            marks = " | ".join("yes" if each else "" for each in may)
            yield f"| {request['method']} {request['path']} | {rule.description.rstrip('.')} | {marks} |"


if __name__ == "__main__":
    DOCUMENT.write_text(expected(DOCUMENT.read_text("utf-8")), "utf-8")
