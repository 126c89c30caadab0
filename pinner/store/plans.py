"""Plans, and their summaries for lists."""

from datetime import datetime
from typing import Any

from sqlalchemy import Engine, Row, insert, select

from pinner import codec
from pinner.model.errors import NotFound
from pinner.model.page import Page, SortDirection
from pinner.model.plan import Plan, PlanSummary
from pinner.store import tables
from pinner.store.engine import reading, writing
from pinner.store.paging import page

_SUMMARY = [tables.plans.c[name] for name in PlanSummary.__dataclass_fields__]


class Plans:
    """The plans of one database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def add(self, plan: Plan, created_at: datetime) -> bool:
        """Store a plan whose snapshot is stored already; whether the plan is new. A stored plan is never changed."""
        row = {
            "id": plan.id,
            "host": plan.host,
            "strategy": plan.request.strategy,
            "created_at": created_at,
            "changes": len(plan.changes),
            "unplaced": len(plan.unplaced),
            "blocked": plan.blocked,
            "snapshot": plan.basis.snapshot,
            "body": codec.dump(plan).decode(),
        }
        with writing(self._engine) as connection:
            is_new = connection.execute(select(tables.plans.c.id).filter_by(id=plan.id)).scalar() is None
            if is_new:
                connection.execute(insert(tables.plans).values(row))
        return is_new

    def get(self, plan: str) -> Plan:
        """The plan with this id. Raises NotFound."""
        with reading(self._engine) as connection:
            body = connection.execute(select(tables.plans.c.body).filter_by(id=plan)).scalar()
        if body is None:
            raise NotFound("plan", plan)
        return codec.load(Plan, body, "plan")

    def list(
        self, host: str | None, limit: int, marker: str, *, direction: SortDirection = "desc"
    ) -> Page[PlanSummary]:
        """Summaries of plans of one host or of all hosts. Raises Invalid for limit and marker."""
        query = select(*_SUMMARY, tables.plans.c.seq)
        if host is not None:
            query = query.filter_by(host=host)
        with reading(self._engine) as connection:
            return page(connection, query, tables.plans, limit, marker, _summary, direction=direction)


def _summary(row: Row[Any]) -> PlanSummary:
    return PlanSummary(*row[: len(_SUMMARY)])
