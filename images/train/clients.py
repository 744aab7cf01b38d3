"""Who asks: browsers on kept and on new connections, over HTTP/1.1 and HTTP/2, with TLS and without, and some others.

Each function is a process of its own. The numbers are shares of what an ingress is asked all day: many short questions on
kept connections, some of everything else.
"""
import os
import socket
import ssl

import h2
import manifests

# An instrumented build on a busy machine is slow.
PATIENCE = 60
# Requests per connection, below the proxy's limit (`keep-alive-requests`).
MOST = 900
FIELDS = ("User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n"
          "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n"
          "Accept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n"
          "Cookie: session=6f1d2c9ab04e4f0c8d57; theme=dark\r\n")


def trusting(protocol):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols([protocol])
    return context


def connect(port, context=None, host=None, session=None):
    it = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    it.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return context.wrap_socket(it, server_hostname=host, session=session) if context else it


def request(host, path="/some/page?x=1", method="GET", body=b"", fields=""):
    length = f"Content-Length: {len(body)}\r\n" if body else ""
    return f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{FIELDS}{fields}{length}\r\n".encode() + body


def some(connection):
    data = connection.recv(65536)
    if not data:
        raise SystemExit("the proxy hung up")
    return data


def read_answer(connection, status=200):
    """One answer, to the end of its body; whether the connection stays."""
    read = b""
    while (end := read.find(b"\r\n\r\n")) < 0:
        read += some(connection)
    head, count = read[:end].lower(), len(read) - end - 4
    if not head.startswith(b"http/1.1 %d" % status):
        raise SystemExit(f"{status} was expected: {head.decode(errors='replace')}")
    if b"\r\ntransfer-encoding: chunked" in head:
        last = read[-5:]
        while last != b"0\r\n\r\n":
            last = (last + some(connection))[-5:]
    elif (at := head.find(b"\r\ncontent-length: ")) >= 0:
        length = int(head[at + 18:].split(b"\r\n", 1)[0])
        while count < length:
            count += len(some(connection))
    return b"\r\nconnection: close" not in head


def kept(opened, requests, count, connections=16, status=200):
    """Asks on kept connections, all at once and in turn."""
    held, asked = [None] * connections, 0
    while asked < count:
        for at in range(connections):
            held[at] = held[at] or opened()
            held[at].sendall(requests[(asked + at) % len(requests)])
        for at in range(connections):
            if not read_answer(held[at], status):
                held[at].close()
                held[at] = None
        asked += connections


def plain_h1(http, _):
    paths = ["/some/page?x=1"] * 8 + ["/items", "/page", "/chunked", "/moving", "/weighted"]
    kept(lambda: connect(http), [request("plain.test", path) for path in paths], 24_000)
    kept(lambda: connect(http), [request("plain.test", "/gone")], 500, status=404)
    kept(lambda: connect(http), [request("plain.test", "/same")], 500, status=304)
    kept(lambda: connect(http), [request("tls.test")], 500, status=308)
    kept(lambda: connect(http), [request("nobody.test")], 500, status=404)


def tls_h1(_, https):
    context = trusting("http/1.1")
    paths = ["/some/page?x=1"] * 8 + ["/api/items", "/page", "/chunked", "/moving"]
    kept(lambda: connect(https, context, "tls.test"), [request("tls.test", path) for path in paths], 24_000)


def many_routes(http, https):
    hosts = [f"h{number}.many.test" for number in range(manifests.MANY)]
    kept(lambda: connect(http), [request(host, f"/api/v{at % 3}/x") for at, host in enumerate(hosts)], 8_000)
    kept(lambda: connect(http), [request(host, "/static/site.css") for host in hosts], 4_000)


def policies(http, _):
    cors = "Origin: https://shop.test\r\n"
    asked = [request("api.test", "/api/items", fields=cors), request("api.test", "/api/items/42?x=1", fields=cors)]
    kept(lambda: connect(http), asked, 8_000)
    known = "Authorization: Basic dXNlcjpzZWNyZXQ=\r\n"
    kept(lambda: connect(http), [request("kept.test", fields=known)], 3_000)
    kept(lambda: connect(http), [request("kept.test")], 200, status=401)


def new_connections(http, https):
    for _ in range(3_000):
        with connect(http) as it:
            it.sendall(request("plain.test", fields="Connection: close\r\n"))
            read_answer(it)
    for resumed in [False] * 2 + [True] * 2:
        context, session = trusting("http/1.1"), None
        for _ in range(250):
            with connect(https, context, "tls.test", session) as it:
                it.sendall(request("tls.test", fields="Connection: close\r\n"))
                read_answer(it)
                session = it.session if resumed else None


def bodies(http, https):
    large, small = os.urandom(1 << 20), b'{"name": "some", "count": 3}'
    context = trusting("http/1.1")
    kept(lambda: connect(http), [request("plain.test", "/items", "POST", small)], 4_000)
    kept(lambda: connect(http), [request("plain.test", "/upload", "PUT", large[:900_000])], 100, 2)
    kept(lambda: connect(https, context, "streamed.test"), [request("streamed.test", "/upload", "PUT", large)], 60, 2)
    kept(lambda: connect(http), [request("plain.test", "/large")], 160, 4)
    kept(lambda: connect(https, context, "tls.test"), [request("tls.test", "/large")], 100, 4)


def over_h2(https, host, count, ask, streams=6):
    """Asks over HTTP/2, some streams at a time; `ask` gives the frames of a request."""
    context, asked = trusting("h2"), 0
    while asked < count:
        with connect(https, context, host) as it:
            it.sendall(h2.PREFACE + h2.frame(h2.SETTINGS, 0, 0, b"\0\4\0\x7f\0\0")
                       + h2.frame(h2.WINDOW_UPDATE, 0, 0, b"\0\x7f\0\0"))
            stream, read = 1, bytearray()
            while stream < 2 * MOST and asked < count:
                it.sendall(b"".join(ask(stream + 2 * at) for at in range(streams)))
                asked, stream = asked + streams, stream + 2 * streams
                take_answers(it, read, streams)


def take_answers(connection, read, streams):
    """Reads until so many streams have ended, and opens windows as a browser does."""
    begun, taken = set(), 0
    while streams:
        read += some(connection)
        for kind, flags, stream, payload in h2.frames(read):
            taken += len(payload) if kind == h2.DATA else 0
            if kind == h2.HEADERS and stream not in begun:
                begun.add(stream)
                # The table size may be updated before the first field.
                if not payload.lstrip(b"\x20\x3f\xe1\x1f").startswith(h2.STATUS_200):
                    raise SystemExit(f"not a 200: {payload.hex()}")
            if kind in (h2.RST_STREAM, h2.GOAWAY):
                raise SystemExit(f"the proxy ended a stream: {payload.hex()}")
            if kind == h2.SETTINGS and not flags & h2.ACK:
                connection.sendall(h2.frame(h2.SETTINGS, h2.ACK, 0))
            if kind in (h2.DATA, h2.HEADERS) and flags & h2.END_STREAM:
                streams -= 1
    if taken:
        connection.sendall(h2.frame(h2.WINDOW_UPDATE, 0, 0, taken.to_bytes(4, "big")))


def browsers_h2(_, https):
    paths = ["/some/page?x=1"] * 5 + ["/assets/site.css?v=20261123", "/items", "/page", "/chunked"]

    def get(stream):
        head = h2.head("tls.test", paths[stream // 2 % len(paths)], stream == 1)
        return h2.frame(h2.HEADERS, h2.END_STREAM | h2.END_HEADERS, stream, head)

    over_h2(https, "tls.test", 24_000, get)
    over_h2(https, "tls.test", 2_000, get, streams=1)


def large_h2(_, https):
    def get(stream):
        return h2.frame(h2.HEADERS, h2.END_STREAM | h2.END_HEADERS, stream, h2.head("tls.test", "/large", stream == 1))

    over_h2(https, "tls.test", 100, get, streams=2)


def calls(_, https):
    def post(stream):
        return (h2.frame(h2.HEADERS, h2.END_HEADERS, stream, h2.call("calls.test", "/shop.Cart/Add"))
                + h2.frame(h2.DATA, h2.END_STREAM, stream, b"\0\0\0\0\5hello"))

    over_h2(https, "calls.test", 3_000, post, streams=3)


def websockets(http, _):
    upgrade = ("Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
               "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n")
    text = b"\x81\x85\0\0\0\0hello"
    for _ in range(50):
        with connect(http) as it:
            it.sendall(request("plain.test", "/ws", fields=upgrade))
            read_answer(it, 101)
            for _ in range(40):
                it.sendall(text)
                echoed = b""
                while len(echoed) < len(text):
                    echoed += some(it)


ALL = [browsers_h2, plain_h1, tls_h1, many_routes, policies, new_connections, bodies, large_h2, calls, websockets]
