"""Callers for tests of the REST API: on the Unix socket, or with tokens."""

import os
import pwd
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from apiflask import APIFlask
from flask.testing import FlaskClient
from oslo_policy.policy import Enforcer

from pinner import conf
from pinner.api.access.context import AccessControl
from pinner.api.access.credentials import Credentials
from pinner.api.access.peer import ENVIRON, Peer, TcpPeer, UnixPeer, parse_networks
from pinner.api.access.policies import Authorizer
from pinner.api.access.refusals import RefusalAudit
from pinner.model.errors import NotFound
from pinner.model.run.audit import AuditEvent
from pinner.model.run.token import Role, Token, parse_token, secret_hash, token_text

LOCAL = UnixPeer(os.getuid(), os.getpid())
"""This process on the Unix socket: an administrator."""
LOCAL_USER = pwd.getpwuid(os.getuid()).pw_name
"""The actor of LOCAL."""


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass
class InMemoryTokens:
    """Tokens in a dictionary, for tests that have no database."""

    rows: dict[str, Token] = field(default_factory=dict)

    def add(self, role: Role, name: str = "", host: str = "", **fields: Any) -> str:
        """Store a token; returns its text. Its name is the name of its role by default."""
        number = len(self.rows) + 1
        made = Token(
            **{
                "id": f"{number:012x}",
                "name": name or role,
                "role": role,
                "host": host,
                "hash": secret_hash(f"{number:064x}"),
                "created_at": utc_now(),
                "created_by": "tests",
                "expires_at": None,
                "revoked_at": None,
                **fields,
            }
        )
        self.rows[made.id] = made
        return token_text(made.id, f"{number:064x}")

    def find(self, token_id: str) -> Token:
        if token_id not in self.rows:
            raise NotFound("token", token_id)
        return self.rows[token_id]


class AuditList(list[AuditEvent]):
    """An audit trail in a list."""

    def append(self, *events: AuditEvent) -> None:
        """Append events in their order."""
        self.extend(events)


def make_control(
    tokens: Any = None,
    audit: Any = None,
    *,
    client_roles: Mapping[str, Role] | None = None,
    trusted: tuple[str, ...] = (),
    config: Any = None,
    now: Callable[[], datetime] = utc_now,
    clock: Callable[[], float] = time.monotonic,
    window_seconds: float = 60.0,
) -> AccessControl:
    """The access control over these tokens and this audit trail, each in memory by default."""
    return AccessControl(
        Credentials(
            InMemoryTokens() if tokens is None else tokens,
            client_roles or {},
            parse_networks(trusted, "trusted"),
            now,
            clock,
        ),
        Authorizer(Enforcer(conf.load([]) if config is None else config), clock),
        RefusalAudit(AuditList() if audit is None else audit, now, window_seconds=window_seconds),
    )


def one_caller() -> tuple[InMemoryTokens, str]:
    """Tokens with a single one, whose name is ann and whose role is admin, and the text of that one."""
    tokens = InMemoryTokens()
    return tokens, tokens.add("admin", "ann")


def client_of(app: APIFlask, peer: Peer = LOCAL, token: str = "") -> FlaskClient:
    """A client of the application at the other end of a connection, by default an administrator on the Unix socket."""
    client = app.test_client()
    client.environ_base[ENVIRON] = peer
    if isinstance(peer, TcpPeer):
        client.environ_base["REMOTE_ADDR"] = peer.address
    if token:
        client.environ_base["HTTP_AUTHORIZATION"] = f"Bearer {token}"
    return client


def bearer(token: str) -> dict[str, str]:
    """The header with the token."""
    return {"Authorization": f"Bearer {token}"}


def wrong_secret(token: str) -> str:
    """A token with the same id and another secret."""
    return token_text(parse_token(token).id, "f" * 64)
