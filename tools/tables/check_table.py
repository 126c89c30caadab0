#!/usr/bin/env python3
"""Writes the table of all checks into docs/checks.md."""

from collections.abc import Iterator
from pathlib import Path

from pinner.model.outcome.check import HostCheck
from pinner.service.hosts.checker import installed
from tables.document_table import with_table

DOCUMENT = Path(__file__).parents[2] / "docs/checks.md"
_BEGIN = "<!-- table of checks: `make checks` writes it -->\n"


def expected(document: str) -> str:
    """The document with the table of the installed checks."""
    return with_table(document, _BEGIN, _table())


def _table() -> Iterator[str]:
    yield "| code | severity | fault | why it hurts | source |"
    yield "|---|---|---|---|---|"
    for check in installed():
        yield f"| `{check.code}` | {_severity(check)} | {check.summary} | {check.why} | {check.source} |"


def _severity(check: HostCheck) -> str:
    return f"{check.severity}; critical: {check.critical}" if check.critical else check.severity


if __name__ == "__main__":
    DOCUMENT.write_text(expected(DOCUMENT.read_text("utf-8")), "utf-8")
