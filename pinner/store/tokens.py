import secrets
from datetime import datetime

from sqlalchemy import Connection, insert, select, update

from pinner.model.errors import NotFound
from pinner.model.run.audit import AuditAction, Caller, audit_event
from pinner.model.run.token import ID_BYTES, SECRET_BYTES, Role, Token, check_host, check_name, secret_hash, token_text
from pinner.store.audit.audit import append_events
from pinner.store.database import tables
from pinner.store.database.engine import Repository, reading, write


class Tokens(Repository):
    def create(
        self, name: str, role: Role, host: str, expires_at: datetime | None, at: datetime, caller: Caller
    ) -> tuple[Token, str]:
        """Returns the row, and the token's text, unreadable later. ``host``: the only one, or empty. Raises Invalid."""
        secret = secrets.token_hex(SECRET_BYTES)
        token = Token(
            id=secrets.token_hex(ID_BYTES),
            name=check_name(name, "name"),
            role=role,
            host=check_host(host, "host") if host else "",
            hash=secret_hash(secret),
            created_at=at,
            created_by=caller.actor,
            expires_at=expires_at,
            revoked_at=None,
        )
        row = {field: getattr(token, field) for field in Token.__dataclass_fields__}
        event = audit_event(caller, at, AuditAction.TOKEN_CREATE, host, token.id, "done", after=_summary(token))

        def store(connection: Connection) -> None:
            connection.execute(insert(tables.tokens), [row])
            append_events(connection, [event])

        write(self._engine, store)
        return token, token_text(token.id, secret)

    def find(self, token_id: str) -> Token:
        """Raises NotFound."""
        with reading(self._engine) as connection:
            return _find(connection, token_id)

    def list(self) -> tuple[Token, ...]:
        """Newest first, also revoked and expired ones."""
        table = tables.tokens
        with reading(self._engine) as connection:
            rows = connection.execute(select(table).order_by(table.c.created_at.desc(), table.c.id)).all()
        return tuple(Token(**row._mapping) for row in rows)

    def revoke(self, token_id: str, at: datetime, caller: Caller) -> Token:
        """A revoked one stays as it is. Raises NotFound."""

        def store(connection: Connection) -> Token:
            token = _find(connection, token_id)
            if token.revoked_at is not None:
                return token
            connection.execute(update(tables.tokens).where(tables.tokens.c.id == token_id).values(revoked_at=at))
            event = audit_event(
                caller, at, AuditAction.TOKEN_REVOKE, token.host, token.id, "done", before=_summary(token)
            )
            append_events(connection, [event])
            return _find(connection, token_id)

        return write(self._engine, store)


def _find(connection: Connection, token_id: str) -> Token:
    row = connection.execute(select(tables.tokens).where(tables.tokens.c.id == token_id)).one_or_none()
    if row is None:
        raise NotFound("token", token_id)
    return Token(**row._mapping)


def _summary(token: Token) -> str:
    where = f", host {token.host}" if token.host else ""
    until = f", until {token.expires_at.isoformat(timespec='seconds')}" if token.expires_at else ""
    return f"{token.role} {token.name}{where}{until}"
