"""The audit actions: their grammar, and that the enum and the code agree."""

import ast
import re
from functools import cache
from pathlib import Path

import pinner
from pinner.model.run import agent_audit, audit
from pinner.model.run.audit import AuditAction

PACKAGE = Path(pinner.__file__).parent


ENUMS = (Path(audit.__file__), Path(agent_audit.__file__))
"""The modules that name the actions."""


@cache
def nodes(folder):
    files = (file for file in folder.rglob("*.py") if file not in ENUMS)
    return [
        node
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, (ast.Attribute, ast.Constant))
    ]


def test_every_action_is_a_noun_and_a_verb():
    for action in AuditAction:
        assert re.fullmatch(r"[a-z]+\.[a-z]+", action.value)
        assert action.name == action.value.replace(".", "_").upper()
        assert re.search(rf"^ *{re.escape(action.value)} ", AuditAction.__doc__, re.MULTILINE), "each is described"


def test_every_action_of_the_enum_is_used():
    used = {
        node.attr
        for node in (*nodes(PACKAGE), *nodes(PACKAGE / "api"))  # rglob follows no symlink, and pinner/api is one
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "AuditAction"
    }
    assert used == set(AuditAction.__members__)


def test_no_action_is_written_as_text_in_the_code():
    nouns = "|".join(sorted({action.value.partition(".")[0] for action in AuditAction}))
    texts = {node.value for node in nodes(PACKAGE) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    assert [found for found in texts if re.fullmatch(rf"(?:{nouns})\.[a-z]*", found)] == []
