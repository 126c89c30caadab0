"""The audit actions: their grammar, and that the enum and the code agree."""

import ast
import re
from pathlib import Path

import pinner
from pinner.model.run import agent_audit, audit
from pinner.model.run.audit import AuditAction

PACKAGE = Path(pinner.__file__).parent


ENUMS = (Path(audit.__file__), Path(agent_audit.__file__))
"""The modules that name the actions."""


def nodes(files):
    return [node for file in files if file not in ENUMS for node in ast.walk(ast.parse(file.read_text()))]


NODES = nodes(PACKAGE.rglob("*.py"))
API_NODES = nodes((PACKAGE / "api").rglob("*.py"))
"""rglob follows no symlink, and pinner/api is one."""


def test_every_action_is_a_noun_and_a_verb():
    for action in AuditAction:
        assert re.fullmatch(r"[a-z]+\.[a-z]+", action.value)
        assert action.name == action.value.replace(".", "_").upper()
        assert re.search(rf"^ *{re.escape(action.value)} ", AuditAction.__doc__, re.MULTILINE), "each is described"


def test_every_action_of_the_enum_is_used():
    used = {
        node.attr
        for node in (*NODES, *API_NODES)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "AuditAction"
    }
    assert used == set(AuditAction.__members__)


def test_no_action_is_written_as_text_in_the_code():
    nouns = "|".join(sorted({action.value.partition(".")[0] for action in AuditAction}))
    texts = {node.value for node in NODES if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    assert [found for found in texts if re.fullmatch(rf"(?:{nouns})\.[a-z]*", found)] == []
