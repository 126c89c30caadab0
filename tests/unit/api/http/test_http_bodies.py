"""A request with a body is never taken for one without, whatever else its head says. h11 is the judge."""

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.server.access import make_control
from support.server.recorded_clients import BODY, LINE, RECORDED
from support.server.unix_http import NOBODY, on_unix_socket

from pinner.api.app import create_app
from pinner.api.http.messages import Endpoints, HttpRequest, RequestRefused, environ
from pinner.api.http.reader import ClientLimits, RequestReader

pytestmark = pytest.mark.fault(66)

LENGTH = b"Content-Length: 18\r\n"
HEAD = LINE + b"Host: localhost\r\n" + LENGTH
NEXT = b"GET /next HTTP/1.1\r\nHost: localhost\r\n\r\n"
UPGRADE = b"Upgrade: h2c\r\n"
ENDS = Endpoints(NOBODY, "http", "localhost", "")

READ = {
    "an upgrade": HEAD + b"Connection: Upgrade\r\n" + UPGRADE,
    "an upgrade before the length": LINE + b"Host: h\r\nConnection: Upgrade\r\n" + UPGRADE + LENGTH,
    "an upgrade to TLS": HEAD + b"Connection: upgrade\r\nUpgrade: TLS/1.2\r\n",
    "an upgrade to a websocket": HEAD + b"Connection: UPGRADE\r\nUpgrade: websocket\r\n",
    "an upgrade among other options": HEAD + b"Connection: keep-alive, Upgrade, HTTP2-Settings\r\n" + UPGRADE,
    "an upgrade in a second header": HEAD + b"Connection: keep-alive\r\nConnection: Upgrade\r\n" + UPGRADE,
    "an upgrade of a proxy": HEAD + b"Proxy-Connection: Upgrade\r\n" + UPGRADE,
    "an upgrade to nothing": HEAD + b"Connection: Upgrade\r\nUpgrade:\r\n",
    "an upgrade with Connection: close": HEAD + b"Connection: close, Upgrade\r\n" + UPGRADE,
    "an upgrade without Connection": HEAD + UPGRADE,
    "Connection: Upgrade alone": HEAD + b"Connection: Upgrade\r\n",
    "Expect and an upgrade": HEAD + b"Expect: 100-continue\r\nConnection: Upgrade\r\n" + UPGRADE,
    "Connection: close": HEAD + b"Connection: close\r\n",
    "HTTP/1.0": HEAD.replace(b"HTTP/1.1", b"HTTP/1.0"),
    "an upgrade with HTTP/1.0": HEAD.replace(b"HTTP/1.1", b"HTTP/1.0") + b"Connection: Upgrade\r\n" + UPGRADE,
    "GET": HEAD.replace(b"PUT", b"GET"),
    "GET with an upgrade": HEAD.replace(b"PUT", b"GET") + b"Connection: Upgrade\r\n" + UPGRADE,
    "HEAD": HEAD.replace(b"PUT", b"HEAD"),
    "DELETE with an upgrade": HEAD.replace(b"PUT", b"DELETE") + b"Connection: Upgrade\r\n" + UPGRADE,
    "OPTIONS": HEAD.replace(b"PUT", b"OPTIONS"),
}
"""Heads at whose end the parser might end the message. Each announces BODY."""
REFUSED = {
    "CONNECT": HEAD.replace(b"PUT /v1/hosts/h1/guests/g1/excluded", b"CONNECT localhost:80"),
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "PRI": HEAD.replace(b"PUT", b"PRI"),
    "HTTP/0.9": b"PUT /v1/hosts/h1/guests/g1/excluded\r\n",
    "HTTP/2.0": HEAD.replace(b"HTTP/1.1", b"HTTP/2.0"),
    "chunks and an upgrade": HEAD.replace(LENGTH, b"Transfer-Encoding: chunked\r\n")
    + b"Connection: Upgrade\r\n" + UPGRADE,
    "identity and an upgrade": HEAD + b"Transfer-Encoding: identity\r\nConnection: Upgrade\r\n" + UPGRADE,
    "two lengths and an upgrade": HEAD + b"Content-Length: 0\r\nConnection: Upgrade\r\n" + UPGRADE,
    "a length beyond the limit and an upgrade": HEAD.replace(b"18", b"9999999") + b"Connection: Upgrade\r\n" + UPGRADE,
}  # fmt: skip


def ours(*parts: bytes) -> list[HttpRequest | RequestRefused]:
    """The requests of a connection."""
    reader = RequestReader(ClientLimits())
    return [item for part in parts for item in reader.feed(part)]


def judged(data: bytes) -> list[tuple[bytes, bytes, bytes]]:
    """Method, target and body of each whole request, as h11 reads the connection; refusals end the list."""
    found: list[tuple[bytes, bytes, bytes]] = []
    judge = h11.Connection(h11.SERVER)
    judge.receive_data(data)
    head, body = h11.Request(method="GET", target="/", headers=[("Host", "h")]), b""
    try:
        while (event := judge.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            if isinstance(event, h11.Request):
                head, body = event, b""
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                found.append((head.method, head.target, body))
                judge.send(h11.Response(status_code=404, headers=[("Content-Length", "0")]))
                judge.send(h11.EndOfMessage())
                if judge.their_state is h11.DONE and judge.our_state is h11.DONE:
                    judge.start_next_cycle()
    except h11.RemoteProtocolError:
        pass
    return found


def described(items: list[HttpRequest | RequestRefused]) -> list[tuple[bytes, bytes, bytes]]:
    return [(item.method.encode(), item.target, bytes(item.body)) for item in items if isinstance(item, HttpRequest)]


@pytest.mark.parametrize("head", READ.values(), ids=READ)
def test_the_body_is_read_where_the_parser_might_end_the_message(head):
    data = head + b"\r\n" + BODY
    (request,) = described(ours(data))
    assert request == judged(data)[0]
    assert request[2] == BODY


@pytest.mark.parametrize("head", READ.values(), ids=READ)
def test_the_body_is_the_same_however_its_bytes_arrive(head):
    data = head + b"\r\n" + BODY + NEXT
    whole = described(ours(data))
    assert whole[0][2] == BODY
    assert described(ours(*(data[at : at + 1] for at in range(len(data))))) == whole
    for cut in (len(head), len(head) + 1, len(head) + 2, len(head) + 5, len(data) - len(NEXT), len(data) - 5):
        assert described(ours(data[:cut], data[cut:])) == whole, cut


@pytest.mark.parametrize("head", REFUSED.values(), ids=REFUSED)
def test_a_head_whose_message_has_no_certain_end_is_refused_whole(head):
    (item,) = ours(head + b"\r\n" + BODY + NEXT)
    assert isinstance(item, RequestRefused)


def test_after_an_upgrade_that_is_ignored_the_connection_goes_on():
    offers = READ["an upgrade"] + b"\r\n" + BODY
    first, second, third = ours(offers + NEXT + offers)
    assert [first.target, second.target, third.target] == [LINE.split()[1], b"/next", LINE.split()[1]]
    assert first.keep_alive
    assert bytes(third.body) == BODY


def test_a_body_that_ends_early_is_no_request():
    data = READ["an upgrade"] + b"\r\n" + BODY
    for end in range(1, len(BODY) + 1):
        assert ours(data[:-end]) == []


def test_the_size_of_an_incomplete_body_counts():
    reader = RequestReader(ClientLimits())
    reader.feed(READ["an upgrade"] + b"\r\n" + BODY[:10])
    assert (reader.phase, reader.size > 10) == ("body", True)


HEADERS = st.sampled_from(
    [
        *(b"Connection: " + option for option in (b"Upgrade", b"close", b"keep-alive", b"keep-alive, upgrade")),
        *(b"Content-Length: " + length for length in (b"18", b"0", b"17")),
        *(b"Transfer-Encoding: " + coding for coding in (b"chunked", b"gzip")),
        *(b"Upgrade: h2c", b"Upgrade: ", b"HTTP2-Settings: AA", b"Proxy-Connection: Upgrade", b"Expect: 100-continue"),
        *(b"Content-Type: application/json", b"TE: trailers", b"Trailer: X", b"X: y"),
    ]
)
METHODS = st.sampled_from((b"GET", b"PUT", b"POST", b"DELETE", b"HEAD", b"OPTIONS", b"CONNECT", b"PRI", b"PATCH"))
VERSIONS = st.sampled_from((b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b""))


@given(METHODS, VERSIONS, st.lists(HEADERS, max_size=6), st.integers(0, 200))
def test_a_request_is_read_as_h11_reads_it_or_refused(method, version, headers, cut):
    head = b"\r\n".join([method + b" /x " + version, b"Host: localhost", *headers, b"\r\n"])
    data = head + BODY + NEXT
    found = described(ours(data[:cut], data[cut:]))
    assert found == judged(data)[: len(found)]


@pytest.mark.parametrize("recorded", RECORDED.values(), ids=RECORDED)
def test_the_body_of_a_recorded_client_is_read(recorded):
    (request,) = described(ours(recorded))
    assert request[2] == BODY


UNREAD = {
    "no length": b"",
    "a length of 0": b"Content-Length: 0\r\n",
    "an upgrade": b"Connection: Upgrade\r\n" + UPGRADE,
}


@pytest.mark.parametrize("headers", UNREAD.values(), ids=UNREAD)
def test_no_operation_with_a_request_schema_takes_an_empty_body_for_the_defaults(pinner, headers):
    app = create_app(pinner, control=make_control(), max_body_bytes=4096)
    client, before = on_unix_socket(app.test_client()), pinner.state()
    operations = [
        (rule.rule.replace("<host>", "h1"), method)
        for rule in app.url_map.iter_rules()
        for method in {"POST", "PUT"} & (rule.methods or set())
        if "body" in app.view_functions[rule.endpoint]._spec
    ]
    assert len(operations) == 13
    for path, method in operations:
        head = b"%s %s HTTP/1.1\r\nHost: h\r\n" % (method.encode(), path.encode())
        (request,) = ours(head + b"Content-Type: application/json\r\n" + headers + b"\r\n")
        answer = client.open(environ_overrides=environ(request, ENDS))
        assert (answer.status_code, answer.json["error"]["details"]["field"]) == (400, "body"), (method, path)
    assert pinner.state() == before


@pytest.mark.parametrize("recorded", RECORDED.values(), ids=RECORDED)
def test_a_recorded_client_includes_the_guest_as_it_asks(client, pinner, recorded):
    guest = client.get("/v1/hosts/h1/guests").json["items"][0]["uuid"]
    (request,) = ours(recorded.replace(b"/g1/", f"/{guest}/".encode()))
    answer = client.open(environ_overrides=environ(request, ENDS))
    assert (answer.status_code, answer.json["excluded"]) == (200, False)
    assert pinner.excluded == {guest: False}
