"""Real HTTP clients include a guest again over http://, each in its own way."""

import http.client
import json
import shutil
import subprocess
import urllib.request

import httpx
import pytest
from support.server.access import InMemoryTokens, make_control
from support.server.recorded_clients import BODY

from pinner.api.app import create_app
from pinner.api.server import serve
from pinner.server.sockets import listen_tcp

pytestmark = pytest.mark.fault(66)

GO = """\
package main
import ("bytes"; "fmt"; "io"; "net/http"; "os")
func main() {
    request, _ := http.NewRequest("PUT", os.Args[1], bytes.NewReader([]byte(os.Args[3])))
    request.Header.Set("Content-Type", "application/json")
    request.Header.Set("Authorization", os.Args[2])
    answer, err := http.DefaultClient.Do(request)
    if err != nil { panic(err) }
    body, _ := io.ReadAll(answer.Body)
    fmt.Println(string(body))
}
"""
JAVA = """\
import java.net.URI;
import java.net.http.*;
class Put {
    public static void main(String[] a) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(a[0])).header("Content-Type", "application/json")
            .header("Authorization", a[1]).PUT(HttpRequest.BodyPublishers.ofString(a[2])).build();
        System.out.println(HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).body());
    }
}
"""
NODE = """\
const [url, token, body] = process.argv.slice(1);
const headers = {"Content-Type": "application/json", Authorization: token};
fetch(url, {method: "PUT", headers, body}).then((answer) => answer.text()).then(console.log);
"""


def run(*command):
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


def curl(url, token, _folder, *options):
    headers = (f"Authorization: {token}", "Content-Type: application/json")
    fields = [part for header in headers for part in ("-H", header)]
    return run("curl", "-sS", "-X", "PUT", *fields, "-d", BODY.decode(), *options, url)


def http2(url, token, folder):
    return curl(url, token, folder, "--http2")


def with_expect(url, token, folder):
    return curl(url, token, folder, "--http2", "-H", "Expect: 100-continue")


def old(url, token, folder):
    return curl(url, token, folder, "--http1.0")


def with_httpx(url, token, _folder):
    return httpx.put(url, content=BODY, headers=headers(token)).text


def with_urllib(url, token, _folder):
    request = urllib.request.Request(url, BODY, headers(token), method="PUT")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read()


def with_http_client(url, token, _folder):
    parts = httpx.URL(url)
    connection = http.client.HTTPConnection(parts.host, parts.port, timeout=20)
    offers = {"Connection": "Upgrade", "Upgrade": "h2c"}
    for _ in range(2):  # over one connection
        connection.request("PUT", parts.path, BODY, headers(token) | offers)
        answer = connection.getresponse().read()
    connection.close()
    return answer


def go(url, token, folder):
    (folder / "put.go").write_text(GO, "utf-8")
    return run("go", "run", str(folder / "put.go"), url, token, BODY.decode())


def java(url, token, folder):
    (folder / "Put.java").write_text(JAVA, "utf-8")
    return run("java", str(folder / "Put.java"), url, token, BODY.decode())


def node(url, token, _folder):
    return run("node", "-e", NODE, url, token, BODY.decode())


def headers(token):
    return {"Authorization": token, "Content-Type": "application/json"}


COMPILED = pytest.mark.slow("compiles a program; its recorded bytes are tested in test_http_bodies.py")
CLIENTS = [curl, http2, with_expect, old, with_httpx, with_urllib, with_http_client]
CLIENTS += [pytest.param(client, marks=COMPILED) for client in (go, java, node)]


@pytest.mark.parametrize("put", CLIENTS)
def test_a_client_includes_a_guest(pinner, tmp_path, put):
    tokens = InMemoryTokens()
    app = create_app(pinner, control=make_control(tokens), max_body_bytes=4096)
    server = serve(app, [listen_tcp("127.0.0.1", 0)])
    guest = pinner.observe("h1", 0.0).guests[0].uuid
    try:
        answer = put(f"{server.url}/v1/hosts/h1/guests/{guest}/excluded", f"Bearer {tokens.add('admin')}", tmp_path)
    finally:
        server.stop()
    assert json.loads(answer)["excluded"] is False
    assert pinner.excluded == {guest: False}
