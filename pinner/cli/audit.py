"""pinner audit list | verify."""

from argparse import Namespace

from pinner import codec
from pinner.cli.context import Context
from pinner.cli.options import page_options
from pinner.cli.output import cells, moment, print_json, table
from pinner.cli.parser import Commands, add_command, add_noun
from pinner.cli.values import moment as moment_value

HASH = 64
"""Characters of a content hash, which names a snapshot."""
SHOWN = 16
"""Characters of it that a table has room for; --json gives it whole."""


def register(commands: Commands) -> None:
    """Add the noun."""
    verbs = add_noun(commands, "audit", "show and check the record of who did what")
    listing = add_command(
        verbs,
        "list",
        list_audit,
        "list the audit trail, the newest first",
        examples=["pinner audit list --limit 20", "pinner audit list --actor alice --since 2026-11-21T09:00"],
    )
    listing.add_argument("--host", metavar="HOST", help="only what was done to this host")
    listing.add_argument("--actor", metavar="NAME", help="only what this user did")
    listing.add_argument("--since", metavar="TIME", type=moment_value, help="only since then (ISO 8601)")
    page_options(listing)
    add_command(
        verbs,
        "verify",
        verify,
        "check the hash chain of the audit trail",
        about="Exit status 1 where a record was changed, removed or moved. HEAD is the last hash: keep it elsewhere,\n"
        "for a trail whose tail was cut off shows only against it.",
        examples=["pinner audit verify"],
    )


def list_audit(context: Context, arguments: Namespace) -> int:
    """Print records."""
    with context.open() as pinner:
        page = pinner.audit(arguments.host, arguments.actor, arguments.since, arguments.limit, arguments.marker)
    headers = ("#", "WHEN", "WHO", "ACTION", "HOST", "SUBJECT", "CHANGE", "RESULT")
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
                record.result,
            )
        )
    context.show_page(page, drawn)
    return 0


def verify(context: Context, _arguments: Namespace) -> int:
    """Print whether the trail is whole."""
    with context.open() as pinner:
        found = pinner.verify_audit()
    if context.json:
        print_json(codec.plain(found))
    elif found.ok:
        context.out.print(*cells(f"whole: {found.records} records, head {found.head}"), soft_wrap=True)
    else:
        context.out.print(*cells(f"broken at record {found.broken}: {found.why}", style="bold red"), soft_wrap=True)
    return 0 if found.ok else 1
