"""pinner-manage token create | list | revoke."""

from argparse import Namespace
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from sqlalchemy import Engine

from pinner.cli.frame.context import agreed
from pinner.cli.frame.output import console, moment, print_items, table
from pinner.cli.frame.parser import Commands, add_database_command
from pinner.cli.frame.values import expiry
from pinner.model.errors import Invalid
from pinner.model.run.token import ROLES
from pinner.store.database import schema
from pinner.store.tokens import Tokens

if TYPE_CHECKING:
    from pinner.model.run.token import Token

LATEST = datetime(9999, 12, 30, tzinfo=UTC)
ROLE_HELP = (
    "reader: every GET; operator: also snapshots, plans, applies, rollbacks and exclusions; admin: everything; "
    "hook: only the events of guests, and the topology of hosts"
)
CREATE_ABOUT = """\
The token is printed once, on stdout. The database has only a hash of it.
The audit trail shows NAME as the actor of every request with the token."""
REVOKE_ABOUT = """\
The server refuses the token within a second, without a restart. A run that
was started with the token goes on; so does an open stream of its events."""


def register(nouns: Commands, execute: Callable[[Namespace], None]) -> None:
    about = "Make, list and revoke the tokens with which callers use the API over TCP."
    tokens = nouns.add_parser("token", help="make, list and revoke the API's tokens", description=about)
    tokens.set_defaults(execute=execute)
    commands = tokens.with_commands()
    summary, example = "make a token and print it", "create deploy --role operator"
    create = add_database_command(commands, "token", "create", _create, summary, about=CREATE_ABOUT, example=example)
    create.add_argument("name", metavar="NAME", help="actor that the audit trail shows, such as the program's name")
    create.add_argument("--role", required=True, choices=ROLES, help=ROLE_HELP)
    create.add_argument("--host", metavar="HOST", help="the only host that the token may act on (default: every host)")
    create.add_argument(
        "--expires",
        metavar="WHEN",
        type=expiry,
        help="a time span (90d, 12h, 4w) or a date (2027-01-31), local time (default: the token does not expire)",
    )
    summary = "list the tokens, also those that are revoked or expired"
    listing = add_database_command(commands, "token", "list", _list, summary, example="list --json")
    listing.add_argument(
        "--json", action="store_true", help="print one JSON document instead of a table, and an error as JSON"
    )
    summary, example = "revoke a token", "revoke 0f3a5c7e9b1d"
    revoke = add_database_command(
        commands, "token", "revoke", _revoke, summary, about=REVOKE_ABOUT, example=example, asks=True
    )
    revoke.add_argument("token", metavar="ID", help="the id that `token list` shows")


def _create(engine: Engine, arguments: Namespace) -> None:
    now = datetime.now(UTC)
    expires_at = _end(arguments.expires, now)
    if arguments.host == "":
        raise Invalid("--host", "", "the name of a host; leave the option out for every host")
    schema.ensure(engine)
    token, text = Tokens(engine).create(
        arguments.name, arguments.role, arguments.host or "", expires_at, now, arguments.caller
    )
    console(stderr=True).print(f"token {token.id}: keep it now, it is not shown again", soft_wrap=True)
    print(text)


def _list(engine: Engine, arguments: Namespace) -> None:
    schema.ensure(engine)
    now = datetime.now(UTC)
    tokens = Tokens(engine).list()
    if arguments.json:
        print_items(_plain(token, now) for token in tokens)
        return
    drawn = table("ID", "NAME", "ROLE", "HOST", "STATE", "CREATED", "BY", "EXPIRES", whole=("ID", "ROLE", "STATE"))
    for token in tokens:
        created, expires = moment(token.created_at), moment(token.expires_at) if token.expires_at else "never"
        where = token.host or "every"
        drawn.add_row(token.id, token.name, token.role, where, token.state(now), created, token.created_by, expires)
    console().print(drawn)


def _revoke(engine: Engine, arguments: Namespace) -> None:
    if not agreed(f"Revoke token {arguments.token}?", yes=arguments.yes):
        return
    schema.ensure(engine)
    token = Tokens(engine).revoke(arguments.token, datetime.now(UTC), arguments.caller)
    print(f"token {token.id} of {token.name} is revoked")


def _end(expires: timedelta | datetime | None, now: datetime) -> datetime | None:
    if expires is None:
        return None
    try:
        end = now + expires if isinstance(expires, timedelta) else expires
    except OverflowError:
        end = LATEST
    if end >= LATEST:  # another time zone might not have it
        raise Invalid("--expires", str(expires), f"a time before {LATEST:%Y-%m-%d}")
    if end <= now:
        raise Invalid("--expires", end.isoformat(timespec="seconds"), "a time span, or a date in the future")
    return end


def _plain(token: "Token", now: datetime) -> dict[str, str | None]:
    return {
        "id": token.id,
        "name": token.name,
        "role": token.role,
        "host": token.host,
        "state": token.state(now),
        "created_at": token.created_at.isoformat(),
        "created_by": token.created_by,
        "expires_at": token.expires_at.isoformat() if token.expires_at else None,
        "revoked_at": token.revoked_at.isoformat() if token.revoked_at else None,
    }
