"""Give the agent's journal a chain of audit records, and the central database the agents' signed heads."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

_HASH = sa.String(64)
_MOMENT = sa.String(32)


def upgrade() -> None:
    """Create both tables. On SQLite, a record of the chain can be removed only if a record chain.cut covers it."""
    _agent_chain()
    op.create_table(
        "agent_heads",
        sa.Column("host", sa.String(255), primary_key=True),
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("hash", _HASH, primary_key=True),
        sa.Column("centre_seq", sa.Integer, nullable=False),
        sa.Column("centre_hash", _HASH, nullable=False),
        sa.Column("at", _MOMENT, nullable=False),
        sa.Column("key", _HASH, nullable=False),
        sa.Column("signature", sa.String(128), nullable=False),
    )
    if op.get_bind().dialect.name == "sqlite":
        op.execute(
            "CREATE TRIGGER agent_chain_refuses_update BEFORE UPDATE ON agent_chain "
            "BEGIN SELECT RAISE(ABORT, 'the chain is append-only'); END"
        )
        op.execute(
            "CREATE TRIGGER agent_chain_refuses_delete BEFORE DELETE ON agent_chain WHEN NOT EXISTS (SELECT 1 "
            "FROM agent_chain WHERE action = 'chain.cut' AND seq > OLD.seq AND CAST(target AS INTEGER) >= OLD.seq) "
            "BEGIN SELECT RAISE(ABORT, 'the chain is append-only'); END"
        )


def downgrade() -> None:
    """Drop both tables; the agent's chain is lost with them."""
    op.drop_table("agent_heads")
    op.drop_table("agent_chain")


def _agent_chain() -> None:
    op.create_table(
        "agent_chain",
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("at", _MOMENT, nullable=False),
        sa.Column("run", sa.String(64), nullable=False),
        sa.Column("action", sa.String(64), nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("before", sa.Text, nullable=False),
        sa.Column("after", sa.Text, nullable=False),
        sa.Column("result", sa.Text, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("peer", sa.Text, nullable=False),
        sa.Column("previous", _HASH, nullable=False),
        sa.Column("hash", _HASH, nullable=False),
    )
    op.create_index("agent_chain_of_action", "agent_chain", ["action", "seq"])
