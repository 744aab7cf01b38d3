"""An endpoint: HTTP/1.1 with answers of several kinds, WebSocket that echoes, calls over HTTP/2."""
import asyncio
import base64
import hashlib
import json
import multiprocessing
import socket

import h2

LARGE = bytes(range(256)) * 4096
PAGE = b"<html>" + b"".join(b"<p>A paragraph with the number %d.</p>\n" % it for it in range(200)) + b"</html>"
ITEMS = json.dumps([{"id": it, "name": f"item {it}"} for it in range(20)]).encode()
MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def answer(body, kind):
    head = (f"HTTP/1.1 200 OK\r\nServer: origin\r\nDate: Mon, 23 Nov 2026 00:00:00 GMT\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(body)}\r\nCache-Control: no-cache\r\nETag: \"5f1-62b\"\r\n\r\n")
    return head.encode() + body


ANSWERS = {b"/large": answer(LARGE, "application/octet-stream"), b"/page": answer(PAGE, "text/html"),
           b"/items": answer(ITEMS, "application/json"),
           b"/chunked": b"HTTP/1.1 200 OK\r\nServer: origin\r\nContent-Type: application/octet-stream\r\n"
                        b"Transfer-Encoding: chunked\r\n\r\n" + b"400\r\n%s\r\n" % (b"c" * 1024) * 4 + b"0\r\n\r\n",
           b"/gone": b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
           b"/same": b"HTTP/1.1 304 Not Modified\r\nETag: \"5f1-62b\"\r\n\r\n"}
SHORT = answer(b"x" * 64, "text/plain")


class Connection(asyncio.Protocol):
    """Of the proxy to this endpoint."""

    def __init__(self):
        self.read, self.speaks, self.body = bytearray(), self.requests, 0

    def connection_made(self, transport):
        self.transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data):
        self.read += data
        if self.read.startswith(h2.PREFACE):
            self.transport.write(h2.frame(h2.SETTINGS, 0, 0) + h2.frame(h2.WINDOW_UPDATE, 0, 0, b"\x3f\0\0\0"))
            del self.read[: len(h2.PREFACE)]
            self.speaks = self.calls
        self.speaks()

    def requests(self):
        while self.read:
            if self.body:
                taken = min(self.body, len(self.read))
                self.body -= taken
                del self.read[:taken]
                if self.body:
                    return
                self.transport.write(SHORT)
                continue
            end = self.read.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self.read[:end])
            del self.read[: end + 4]
            fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
            if b"upgrade" in fields:
                key = head.lower().find(b"sec-websocket-key: ") + len("sec-websocket-key: ")
                accept = base64.b64encode(hashlib.sha1(head[key:key + 24] + MAGIC).digest())
                self.transport.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                                     b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n")
                self.speaks = self.echo
                return self.echo()
            self.body = int(fields.get(b"content-length", 0))
            if not self.body:
                self.transport.write(ANSWERS.get(head.split(b" ", 2)[1].split(b"?")[0], SHORT))

    def echo(self):
        self.transport.write(bytes(self.read))
        self.read.clear()

    def calls(self):
        for kind, flags, stream, _ in h2.frames(self.read):
            if kind == h2.SETTINGS and not flags & h2.ACK:
                self.transport.write(h2.frame(h2.SETTINGS, h2.ACK, 0))
            elif kind == h2.PING and not flags & h2.ACK:
                self.transport.write(h2.frame(h2.PING, h2.ACK, 0, bytes(8)))
            elif kind in (h2.DATA, h2.HEADERS) and flags & h2.END_STREAM:
                head = h2.STATUS_200 + h2.literal("content-type", "application/grpc")
                self.transport.write(
                    h2.frame(h2.HEADERS, h2.END_HEADERS, stream, head) + h2.frame(h2.DATA, 0, stream, b"\0\0\0\0\2hi")
                    + h2.frame(h2.HEADERS, h2.END_HEADERS | h2.END_STREAM, stream, h2.literal("grpc-status", "0")))


def start():
    """The process of an endpoint, and its port."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)

    async def serve():
        server = await asyncio.get_running_loop().create_server(Connection, sock=listener)
        await server.serve_forever()

    process = multiprocessing.Process(target=lambda: asyncio.run(serve()), daemon=True)
    process.start()
    return process, listener.getsockname()[1]
