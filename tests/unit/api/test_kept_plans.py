import pytest
from support.values import make_plan

from pinner.api.access.context import KEPT, KEPT_SECONDS, KeptPlans
from pinner.model.errors import NotFound


def test_a_plan_is_loaded_once_while_it_is_kept():
    now, loaded = [0.0], []

    def load(plan):
        loaded.append(plan)
        return make_plan()

    kept = KeptPlans(lambda: now[0])
    first = kept.get("a", load)
    assert kept.get("a", load) is first
    assert (first.host, loaded) == (make_plan().host, ["a"])
    now[0] = KEPT_SECONDS + 1
    kept.get("a", load)
    assert loaded == ["a", "a"]


def test_the_number_of_plans_is_bounded():
    loaded = []
    kept = KeptPlans()
    for number in (*range(KEPT + 1), 0):
        kept.get(str(number), lambda plan: loaded.append(plan) or make_plan())
    assert loaded[-1] == "0"


def test_a_missing_plan_is_not_kept():
    def missing(plan):
        raise NotFound("plan", plan)

    kept = KeptPlans()
    with pytest.raises(NotFound):
        kept.get("a", missing)
    assert kept.get("a", lambda _: make_plan()).json


def test_a_client_that_has_the_plan_gets_no_body(client):
    plan = client.post("/v1/hosts/h1/plans", json={}).json["id"]
    shown = client.get(f"/v1/plans/{plan}")
    again = client.get(f"/v1/plans/{plan}", headers={"If-None-Match": shown.headers["ETag"]})
    assert (again.status_code, again.data) == (304, b"")
    assert client.get(f"/v1/plans/{plan}", headers={"If-None-Match": '"other"'}).json == shown.json
