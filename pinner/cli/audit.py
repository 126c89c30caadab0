"""pinner audit list | verify."""

import textwrap
from argparse import Namespace

from rich.text import Text

from pinner import codec
from pinner.cli.context import Context
from pinner.cli.options import page_options
from pinner.cli.output import cells, moment, print_json, table
from pinner.cli.parser import Commands, add_command, add_noun
from pinner.cli.values import moment as moment_value
from pinner.render import visible

HASH = 64
"""Characters of a content hash, by which a snapshot is identified."""
SHOWN = 16
"""Characters of a content hash that a table shows; --json prints all of them."""
RESULT_WIDTH = 24
"""Columns of a result in a table. A long result takes several lines and leaves room for the other columns."""


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
    add_command(
        verbs,
        "verify",
        verify,
        "verify the hash chain of the audit trail",
        about="The command prints the number of records and the head, which is the hash of\n"
        "the last record. Store the head outside the host: only a comparison with it\n"
        "shows that the last records were cut off.",
        status={0: "the audit trail is intact", 1: "a record was changed, removed or moved, or the command failed"},
        examples=["pinner audit verify"],
    )


def list_audit(context: Context, arguments: Namespace) -> int:
    """Print a page of the audit trail."""
    with context.open() as pinner:
        page = pinner.audit(arguments.host, arguments.actor, arguments.since, arguments.limit, arguments.marker)
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
                f"{record.before} -> {record.after}" if record.before or record.after else "",
                Text("\n".join(textwrap.wrap(visible(record.result), RESULT_WIDTH))),
            )
        )
    context.show_page(page, drawn)
    return 0


def verify(context: Context, _arguments: Namespace) -> int:
    """Print whether the audit trail is intact."""
    with context.open() as pinner:
        found = pinner.verify_audit()
    if context.json:
        print_json(codec.plain(found))
    elif found.ok:
        context.out.print(*cells(f"intact: {found.records} records, head {found.head}"), soft_wrap=True)
    else:
        context.out.print(*cells(f"broken at record {found.broken}: {found.why}", style="bold red"), soft_wrap=True)
    return 0 if found.ok else 1
