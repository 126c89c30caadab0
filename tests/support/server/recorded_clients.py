"""PUT requests as HTTP clients sent them to an http:// URL, byte for byte; each has the body BODY."""

BODY = b'{"excluded":false}'
LINE = b"PUT /v1/hosts/h1/guests/g1/excluded HTTP/1.1\r\n"
_HOST = b"Host: 127.0.0.1:8077\r\n"
_JSON = b"Content-Type: application/json\r\n"

RECORDED = {
    "HttpClient of Java 17": LINE + b"Connection: Upgrade, HTTP2-Settings\r\nContent-Length: 18\r\n" + _HOST
    + b"HTTP2-Settings: AAEAAEAAAAIAAAAAAAMAAAAAAAQBAAAAAAUAAEAAAAYABgAA\r\nUpgrade: h2c\r\n"
    + b"User-Agent: Java-http-client/17.0.15\r\n" + _JSON + b"\r\n" + BODY,
    "curl 7.88 --http2": LINE + _HOST + b"User-Agent: curl/7.88.1\r\nAccept: */*\r\n"
    + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n"
    + _JSON + b"Content-Length: 18\r\n\r\n" + BODY,
    "net/http of Go 1.26": LINE + _HOST + b"User-Agent: Go-http-client/1.1\r\nContent-Length: 18\r\n" + _JSON
    + b"Accept-Encoding: gzip\r\n\r\n" + BODY,
    "fetch of Node.js 20": LINE + b"host: 127.0.0.1:8077\r\nconnection: keep-alive\r\n" + _JSON
    + b"accept: */*\r\naccept-language: *\r\nsec-fetch-mode: cors\r\nuser-agent: node\r\n"
    + b"accept-encoding: gzip, deflate\r\ncontent-length: 18\r\n\r\n" + BODY,
}  # fmt: skip
