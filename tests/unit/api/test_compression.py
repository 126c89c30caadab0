import gzip
import threading

import pytest
from support.fakes.in_memory_service import InMemoryService
from support.server.access import make_control

from pinner.api.app import create_app

LARGE = "/openapi.json"


@pytest.fixture(scope="module")
def reader():
    """A client of an application that no test changes: it makes the large document once."""
    return create_app(InMemoryService(), control=make_control(), max_body_bytes=4096).test_client()


@pytest.mark.parametrize("accepted", ["gzip", "deflate, gzip;q=0.5", "*", "GZIP"])
def test_a_large_answer_is_compressed_when_asked(reader, accepted):
    plain, packed = reader.get(LARGE), reader.get(LARGE, headers={"Accept-Encoding": accepted})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.data) == plain.data
    assert int(packed.headers["Content-Length"]) == len(packed.data) < len(plain.data) / 4


@pytest.mark.parametrize("accepted", [None, "", "identity", "br", "gzip;q=0", "*;q=0"])
def test_an_answer_stays_plain_where_gzip_is_not_accepted(reader, accepted):
    headers = {} if accepted is None else {"Accept-Encoding": accepted}
    answer = reader.get(LARGE, headers=headers)
    assert "Content-Encoding" not in answer.headers
    assert answer.json["info"]


def test_caches_learn_that_the_answer_varies(reader):
    for headers in ({}, {"Accept-Encoding": "gzip"}):
        assert "Accept-Encoding" in reader.get(LARGE, headers=headers).headers["Vary"]


def test_a_small_answer_is_not_compressed(client):
    answer = client.get("/healthcheck", headers={"Accept-Encoding": "gzip"})
    assert "Content-Encoding" not in answer.headers
    assert answer.json == {"status": "ok"}


def test_equal_answers_have_equal_bytes(reader):
    first, second = (reader.get(LARGE, headers={"Accept-Encoding": "gzip"}).data for _ in range(2))
    assert first == second


def test_head_and_get_have_the_same_headers(reader):
    for method in ("get", "head"):
        answer = getattr(reader, method)(LARGE, headers={"Accept-Encoding": "gzip"})
        assert answer.headers["Content-Encoding"] == "gzip"


def test_a_stream_is_not_compressed(server, pinner):
    pinner.instant = False
    plan = server.http.post("/v1/hosts/h1/plans", json={}).json()["id"]
    run = server.http.post(f"/v1/plans/{plan}/apply", json={}).json()["id"]
    threading.Timer(0.2, pinner.finish, [run]).start()
    with server.http.stream("GET", f"/v1/runs/{run}/events", headers={"Accept-Encoding": "gzip"}) as answer:
        assert "Content-Encoding" not in answer.headers
        assert "event: end" in "".join(answer.iter_text())


def test_an_answer_that_was_given_before_is_compressed_like_the_first(client):
    """The stored answer is plain: the client of the repetition may accept something else."""
    first, packed, plain = (
        client.post("/v1/hosts/h1/plans", headers={"Idempotency-Key": "one", "Accept-Encoding": accepted}, json={})
        for accepted in ("gzip", "gzip", "identity")
    )
    assert packed.headers["Content-Encoding"] == first.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(first.data) == gzip.decompress(packed.data) == plain.data
    assert plain.headers["Idempotency-Replayed"] == packed.headers["Idempotency-Replayed"] == "true"
