"""pinner audit list, and what convinces a third party: verify | anchor | export | key."""

import os
import re
import sys
import textwrap
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pinner import codec
from pinner.cli.frame.context import CommandContext, read_file, reason
from pinner.cli.frame.options import page_options
from pinner.cli.frame.output import Cell, Table, cells, moment, print_json, table
from pinner.cli.frame.parser import Commands, add_command, add_noun
from pinner.cli.frame.values import moment as moment_value
from pinner.cli.frame.values import path
from pinner.model.errors import Invalid
from pinner.model.page import PageRequest
from pinner.model.run.agent_audit import Anchor
from pinner.render import visible

if TYPE_CHECKING:
    from pinner.model.run.audit import AuditRecord
    from pinner.model.run.verification import Verification

HASH = 64
SHOWN = 16
"""--json prints the whole hash."""
RESULT_WIDTH = 24
WIDE = 110
"""From this width on, each part of a record has a column of its own."""
_HASHES = re.compile(f"[0-9a-f]{{{HASH}}}")


def register(commands: Commands) -> None:
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
    _register_proofs(verbs)


def list_audit(context: CommandContext, arguments: Namespace) -> int:
    with context.open() as pinner:
        page = pinner.audit(
            arguments.host, arguments.actor, arguments.since, PageRequest(arguments.limit, arguments.marker)
        )
    drawn = _wide(page.items) if context.json or context.out.width >= WIDE else _narrow(page.items)
    context.show_page(page, drawn)
    return 0


def _wide(records: "Iterable[AuditRecord]") -> Table:
    headers = ("#", "WHEN", "ACTOR", "ACTION", "HOST", "SUBJECT", "CHANGE", "RESULT")
    drawn = table(*headers, right=("#",), whole=("#", "WHEN", "ACTION", "RESULT"))
    for record in records:
        drawn.add_row(
            record.seq,
            moment(record.at),
            f"{record.actor}, {record.origin}",
            record.action,
            record.host,
            _subject(record),
            _change(record),
            Cell("\n".join(textwrap.wrap(visible(record.result), RESULT_WIDTH))),
        )
    return drawn


def _narrow(records: "Iterable[AuditRecord]") -> Table:
    drawn = table("#", "WHEN", "WHAT", right=("#",), whole=("#", "WHEN"))
    for record in records:
        where = f" on {record.host}" if record.host else ""
        head = f"{record.action}{where} by {record.actor}, {record.origin}"
        parts = (head, _subject(record), _change(record), record.result)
        drawn.add_row(record.seq, moment(record.at), Cell("\n".join(visible(part) for part in parts if part)))
    return drawn


def _subject(record: "AuditRecord") -> str:
    return record.subject if len(record.subject) < HASH else f"{record.subject[:SHOWN]}..."


def _change(record: "AuditRecord") -> str:
    change = f"{record.before} -> {record.after}" if record.before or record.after else ""
    return _HASHES.sub(lambda digest: f"{digest[0][:SHOWN]}...", change)


MAX_BYTES = 16 * 1024 * 1024


def _register_proofs(verbs: Commands) -> None:
    _register_verify(verbs)
    add_command(
        verbs,
        "anchor",
        anchor,
        "print the signed heads of the audit trail, to keep elsewhere",
        about="The anchor is one small JSON document. It has the head of each agent's trail,\n"
        "signed by the agent, and the head of the centre's trail. Keep it where neither\n"
        "this host's root nor pinner's user can write: in a git repository, on paper.\n"
        "`pinner audit verify --anchor FILE` says whether the trails still contain it.",
        examples=["pinner audit anchor > anchor.json"],
    )
    exporting = add_command(
        verbs,
        "export",
        export,
        "write the whole audit trail to a file, for a third party",
        about="The file has one JSON document a line: the signed heads, the trail of each\n"
        "agent and the trail of the centre. `pinner audit verify --file` needs only this\n"
        "file and the agent's public key.",
        examples=["pinner audit export trail.jsonl"],
    )
    exporting.add_argument("file", metavar="FILE", type=path, help="file to create; it must not exist")
    key = add_command(
        verbs,
        "key",
        print_key,
        "print the public key of the agent's signature, in PEM",
        about="Give the key to the third party by a way that the third party trusts.",
        examples=["pinner audit key > agent.pem"],
    )
    key.add_argument("--host", metavar="HOST", help="host of the agent (default: the only host)")


def _register_verify(verbs: Commands) -> None:
    parser = add_command(
        verbs,
        "verify",
        verify,
        "verify the audit trail",
        about="The command checks the trail in the central database, the signed trail of each\n"
        "agent, and each of them against the other. It names what was changed, cut off,\n"
        "forged, or never reported to the centre.",
        status={
            0: "the audit trail is intact",
            1: "the trail is broken, an agent did not answer, or the command failed",
        },
        examples=[
            "pinner audit verify",
            "pinner audit verify --anchor anchor.json",
            "pinner audit verify --file trail.jsonl --public-key agent.pem",
        ],
    )
    parser.add_argument(
        "--anchor", metavar="FILE", type=path, help="also check that the trail contains this output of `audit anchor`"
    )
    parser.add_argument(
        "--file", metavar="FILE", type=path, help="verify this output of `audit export`; no server is needed"
    )
    parser.add_argument(
        "--public-key", metavar="FILE", type=path, help="the agent's public key in PEM; needed with --file"
    )


def verify(context: CommandContext, arguments: Namespace) -> int:
    anchor = _read_anchor(arguments.anchor) if arguments.anchor else None
    if (arguments.file is None) != (arguments.public_key is None):
        raise Invalid("--file", str(arguments.file), "--file and --public-key together")
    if arguments.file is not None:
        verification = _verify_file(arguments.file, arguments.public_key, anchor)
    else:
        with context.open() as pinner:
            verification = pinner.verify_audit(anchor) if anchor else pinner.verify_audit()
    _show_verification(context, verification)
    return 0 if verification.ok else 1


def anchor(context: CommandContext, _arguments: Namespace) -> int:
    with context.open() as pinner:
        print_json(codec.plain(pinner.audit_anchor()))
    return 0


def export(context: CommandContext, arguments: Namespace) -> int:
    """The new file appears when it is complete."""
    part = arguments.file.with_name(f".{arguments.file.name}.{os.getpid()}")
    count = 0
    try:
        if arguments.file.exists():
            raise Invalid("FILE", str(arguments.file), "a file that does not exist yet")
        with context.open() as pinner, part.open("x", encoding="utf-8", errors="backslashreplace") as file:
            for line in pinner.export_audit():
                file.write(line)
                count += 1
        part.replace(arguments.file)
    except OSError as error:
        raise Invalid("FILE", str(arguments.file), f"a file that can be written ({reason(error)})") from None
    finally:
        part.unlink(missing_ok=True)
    if context.json:
        print_json({"file": str(arguments.file), "lines": count})
    context.inform(f"wrote {count} lines to {arguments.file}")
    return 0


def print_key(context: CommandContext, arguments: Namespace) -> int:
    from pinner.agent.trail.signing import pem

    with context.open() as pinner:
        heads = pinner.audit_anchor().heads
    names = tuple(head.host for head in heads)
    matches = [head for head in heads if arguments.host in (None, head.host)]
    if len(matches) != 1:
        raise Invalid("--host", arguments.host or "", f"one of {', '.join(names)}")
    if context.json:
        print_json({"host": matches[0].host, "key": matches[0].key})
    else:
        sys.stdout.write(pem(matches[0].key))
    return 0


def _verify_file(file: Path, key: Path, anchor: Anchor | None) -> "Verification":
    # Imported here for the same reason as in context.open_pinner.
    from pinner.agent.trail.signing import read_pem
    from pinner.service.audit.audit_export import verify_file

    return verify_file(file, read_pem(read_file("--public-key", key, MAX_BYTES), "--public-key"), anchor)


def _read_anchor(file: Path) -> Anchor:
    content = read_file("--anchor", file, MAX_BYTES)
    try:
        return codec.load(Anchor, content, "anchor")
    except Invalid as error:
        raise Invalid("--anchor", str(file), f"a file that `pinner audit anchor` wrote ({error})") from None


def _show_verification(context: CommandContext, verification: "Verification") -> None:
    if context.json:
        print_json(codec.plain(verification))
        return
    for finding in verification.findings:
        context.out.print(*cells(f"{finding.kind.value}: {finding.message}", style="bold red"), soft_wrap=True)
    centre = f"{verification.result}: {verification.records} records of the centre, head {verification.head or '-'}"
    context.out.print(*cells(centre, style="" if verification.ok else "bold red"), soft_wrap=True)
    for agent in verification.agents:
        signed = f", signed at {agent.head.at} with the key {agent.head.key}" if agent.head else ""
        head = agent.head.hash if agent.head else "-"
        text = f"agent on {agent.host}: {agent.records} records, head {head}{signed}"
        context.out.print(*cells(text), soft_wrap=True)
    if verification.without_trail:
        text = f"{verification.without_trail} records of hosts without a trail: nothing proves them"
        context.out.print(*cells(text), soft_wrap=True)
