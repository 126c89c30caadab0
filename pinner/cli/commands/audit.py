"""pinner audit list; its other verbs are in audit_proof."""

import re
import textwrap
from argparse import Namespace
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pinner.cli.commands import audit_proof
from pinner.cli.frame.context import CommandContext
from pinner.cli.frame.options import page_options
from pinner.cli.frame.output import cells, moment, table
from pinner.cli.frame.tables import Cell, Table
from pinner.cli.frame.values import moment as moment_value
from pinner.cli.parser import Commands, add_command, add_noun
from pinner.model.page import PageRequest
from pinner.render import visible

if TYPE_CHECKING:
    from pinner.model.run.audit import AuditRecord

HASH = 64
"""Characters of a content hash, by which a snapshot is identified."""
SHOWN = 16
"""Characters of a content hash that a table shows; --json prints all of them."""
RESULT_WIDTH = 24
"""Columns of a result in a table. A long result takes several lines and leaves room for the other columns."""
WIDE = 110
"""Columns of a terminal from which on each part of a record has a column of its own."""
_HASHES = re.compile(f"[0-9a-f]{{{HASH}}}")


def register(commands: Commands) -> None:
    """Add the noun."""
    verbs = add_noun(commands, "audit", "show or verify the audit trail: who did what, and when")
    listing = add_command(
        verbs,
        "list",
        list_audit,
        "list the records of the audit trail, newest first",
        examples=["pinner audit list --limit 20", "pinner audit list --actor alice --since 2026-11-21T09:00"],
    )
    listing.add_argument("--host", metavar="HOST", help="only records about this host")
    listing.add_argument("--actor", metavar="NAME", help="only actions of this user, or of the token with this name")
    listing.add_argument(
        "--since",
        metavar="TIME",
        type=moment_value,
        help="only records since this time (ISO 8601, in local time unless it names a zone)",
    )
    page_options(listing)
    audit_proof.register(verbs)


def list_audit(context: CommandContext, arguments: Namespace) -> int:
    """Print a page of the audit trail."""
    with context.open() as pinner:
        page = pinner.audit(
            arguments.host, arguments.actor, arguments.since, PageRequest(arguments.limit, arguments.marker)
        )
    drawn = _wide(page.items) if context.json or context.out.width >= WIDE else _narrow(page.items)
    context.show_page(page, drawn)
    return 0


def _wide(records: "Iterable[AuditRecord]") -> Table:
    """The records with a column for each part."""
    headers = ("#", "WHEN", "ACTOR", "ACTION", "HOST", "SUBJECT", "CHANGE", "RESULT")
    drawn = table(*headers, right=("#",), whole=("#", "WHEN", "ACTION", "RESULT"))
    for record in records:
        drawn.add_row(
            *cells(
                record.seq,
                moment(record.at),
                f"{record.actor}, {record.origin}",
                record.action,
                record.host,
                _subject(record),
                _change(record),
                Cell("\n".join(textwrap.wrap(visible(record.result), RESULT_WIDTH))),
            )
        )
    return drawn


def _narrow(records: "Iterable[AuditRecord]") -> Table:
    """The records with a line for each part, for a terminal that has no room for eight columns."""
    drawn = table("#", "WHEN", "WHAT", right=("#",), whole=("#", "WHEN"))
    for record in records:
        where = f" on {record.host}" if record.host else ""
        head = f"{record.action}{where} by {record.actor}, {record.origin}"
        parts = (head, _subject(record), _change(record), record.result)
        drawn.add_row(*cells(record.seq, moment(record.at), Cell("\n".join(visible(part) for part in parts if part))))
    return drawn


def _subject(record: "AuditRecord") -> str:
    return record.subject if len(record.subject) < HASH else f"{record.subject[:SHOWN]}..."


def _change(record: "AuditRecord") -> str:
    return _HASHES.sub(_short, f"{record.before} -> {record.after}") if record.before or record.after else ""


def _short(found: re.Match[str]) -> str:
    return f"{found[0][:SHOWN]}..."
