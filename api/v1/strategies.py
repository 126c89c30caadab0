"""/v1/strategies: the installed strategies."""

from apiflask import APIBlueprint
from pydantic import RootModel

from pinner.api.access.context import pinner
from pinner.api.schemas.answers import PageAnswer, linked, page
from pinner.api.schemas.queries import PageQuery
from pinner.model.page import Page
from pinner.service.protocol import StrategyInfo

bp = APIBlueprint("strategies", __name__, tag="Strategies")


@bp.get("/strategies")
@bp.input(PageQuery, location="query")
@bp.output(RootModel[Page[StrategyInfo]])
@bp.doc(operation_id="list_strategies")
def listing(query_data: PageQuery) -> PageAnswer[StrategyInfo]:
    """List the installed strategies. Each names the plan parameters that it uses."""
    return linked(page(pinner().strategies(), lambda strategy: strategy.name, query_data.limit, query_data.marker))
