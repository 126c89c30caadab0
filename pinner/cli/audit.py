"""pinner audit list; its other verbs are in audit_proof."""

import re
import textwrap
from argparse import Namespace

from pinner.cli import audit_proof
from pinner.cli.context import Context
from pinner.cli.options import page_options
from pinner.cli.output import cells, moment, table
from pinner.cli.parser import Commands, add_command, add_noun
from pinner.cli.values import moment as moment_value
from pinner.model.page import PageRequest
from pinner.render import visible

HASH = 64
"""Characters of a content hash, by which a snapshot is identified."""
SHOWN = 16
"""Characters of a content hash that a table shows; --json prints all of them."""
RESULT_WIDTH = 24
"""Columns of a result in a table. A long result takes several lines and leaves room for the other columns."""
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


def list_audit(context: Context, arguments: Namespace) -> int:
    """Print a page of the audit trail."""
    from rich.text import Text

    with context.open() as pinner:
        page = pinner.audit(
            arguments.host, arguments.actor, arguments.since, PageRequest(arguments.limit, arguments.marker)
        )
    headers = ("#", "WHEN", "ACTOR", "ACTION", "HOST", "SUBJECT", "CHANGE", "RESULT")
    drawn = table(*headers, right=("#",), whole=("#", "WHEN", "ACTION", "RESULT"))
    for record in page.items:
        drawn.add_row(
            *cells(
                record.seq,
                moment(record.at),
                f"{record.actor}, {record.origin}",
                record.action,
                record.host,
                record.subject if len(record.subject) < HASH else f"{record.subject[:SHOWN]}...",
                _HASHES.sub(_short, f"{record.before} -> {record.after}") if record.before or record.after else "",
                Text("\n".join(textwrap.wrap(visible(record.result), RESULT_WIDTH))),
            )
        )
    context.show_page(page, drawn)
    return 0


def _short(found: re.Match[str]) -> str:
    return f"{found[0][:SHOWN]}..."
