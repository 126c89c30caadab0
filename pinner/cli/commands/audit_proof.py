"""pinner audit verify | anchor | export | key: what convinces a third party."""

import os
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from pinner import codec
from pinner.cli.frame.context import CommandContext, reason
from pinner.cli.frame.output import cells, print_json
from pinner.cli.frame.values import path
from pinner.cli.parser import Commands, add_command
from pinner.model.errors import Invalid
from pinner.model.run.agent_audit import Anchor

if TYPE_CHECKING:
    from pinner.model.run.verification import Verification

MAX_BYTES = 16 * 1024 * 1024
"""The largest anchor or key file that is read."""


def register(verbs: Commands) -> None:
    """Add the verbs."""
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
    """Print whether the audit trail is intact, and what is wrong."""
    anchor = _read_anchor(arguments.anchor) if arguments.anchor else None
    if (arguments.file is None) != (arguments.public_key is None):
        raise Invalid("--file", str(arguments.file), "--file and --public-key together")
    if arguments.file is not None:
        found = _verify_file(arguments.file, arguments.public_key, anchor)
    else:
        with context.open() as pinner:
            found = pinner.verify_audit(anchor) if anchor else pinner.verify_audit()
    _show(context, found)
    return 0 if found.ok else 1


def anchor(context: CommandContext, _arguments: Namespace) -> int:
    """Print an anchor."""
    with context.open() as pinner:
        print_json(codec.plain(pinner.audit_anchor()))
    return 0


def export(context: CommandContext, arguments: Namespace) -> int:
    """Write the trail to a new file, which appears when it is complete."""
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
    context.note(f"wrote {count} lines to {arguments.file}")
    return 0


def print_key(context: CommandContext, arguments: Namespace) -> int:
    """Print the public key of the agent."""
    from pinner.agent.trail.signing import pem

    with context.open() as pinner:
        heads = pinner.audit_anchor().heads
    names = tuple(head.host for head in heads)
    found = [head for head in heads if arguments.host in (None, head.host)]
    if len(found) != 1:
        raise Invalid("--host", arguments.host or "", f"one of {', '.join(names)}")
    if context.json:
        print_json({"host": found[0].host, "key": found[0].key})
    else:
        sys.stdout.write(pem(found[0].key))
    return 0


def _verify_file(file: Path, key: Path, anchor: Anchor | None) -> "Verification":
    # Imported here for the same reason as in context.open_pinner.
    from pinner.agent.trail.signing import read_pem
    from pinner.service.audit.audit_export import verify_file

    return verify_file(file, read_pem(_read(key, "--public-key"), "--public-key"), anchor)


def _read_anchor(file: Path) -> Anchor:
    content = _read(file, "--anchor")
    try:
        return codec.load(Anchor, content, "anchor")
    except Invalid as error:
        raise Invalid("--anchor", str(file), f"a file that `pinner audit anchor` wrote ({error})") from None


def _read(file: Path, option: str) -> bytes:
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise Invalid(option, str(file), f"a file that can be read ({reason(error)})") from None
    if len(content) > MAX_BYTES:
        raise Invalid(option, str(file), f"a file of at most {MAX_BYTES} bytes")
    return content


def _show(context: CommandContext, found: "Verification") -> None:
    if context.json:
        print_json(codec.plain(found))
        return
    for finding in found.findings:
        context.out.print(*cells(f"{finding.kind.value}: {finding.message}", style="bold red"), soft_wrap=True)
    centre = f"{found.result}: {found.records} records of the centre, head {found.head or '-'}"
    context.out.print(*cells(centre, style="" if found.ok else "bold red"), soft_wrap=True)
    for agent in found.agents:
        signed = f", signed at {agent.head.at} with the key {agent.head.key}" if agent.head else ""
        head = agent.head.hash if agent.head else "-"
        text = f"agent on {agent.host}: {agent.records} records, head {head}{signed}"
        context.out.print(*cells(text), soft_wrap=True)
