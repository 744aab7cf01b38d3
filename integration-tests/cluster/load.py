"""Steady requests on a ledger: each has a number, is written once, and is answered 200 with its number, or stands there as a problem.

Three kinds of problem, for they are not the same to a user: *unreachable*, nothing took the connection, and nothing of the request was
written; *lost*, it was written and no answer came; *wrong*, the answer is not the one to it.
"""

import itertools
import select
import socket
import threading
import time

PAUSE = 0.03
# A connection that is silent for this long has lost the request.
PATIENCE = 20
CONNECT = 1
AGAIN = 0.1


class Load:
    """Clients on kept-alive connections to one address, from `with` on until its end."""

    def __init__(self, name, address, host, clients=4):
        self.name, self.address, self.host = name, address, host
        self.answered, self.problems = set(), []
        self.numbers = itertools.count()
        self.lock, self.stop = threading.Lock(), threading.Event()
        self.clients = [threading.Thread(target=self.client, daemon=True) for _ in range(clients)]

    def __enter__(self):
        for client in self.clients:
            client.start()
        return self

    def __exit__(self, *failed):
        self.stop.set()
        for client in self.clients:
            client.join()

    def client(self):
        kept = None
        while not self.stop.wait(PAUSE):
            number = f"{self.name}.{next(self.numbers)}"
            # A server that closed in the meantime announced it in time: nothing was written.
            if kept and select.select([kept], [], [], 0)[0]:
                kept.close()
                kept = None
            if not kept:
                try:
                    kept = socket.create_connection(self.address, CONNECT)
                    kept.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    kept.settimeout(PATIENCE)
                except OSError as error:
                    self.problem("unreachable", number, error)
                    kept = None
                    self.stop.wait(AGAIN)
                    continue
            try:
                kept = self.ask(kept, number)
            except (OSError, ValueError) as error:
                self.problem("lost", number, error)
                kept.close()
                kept = None
        if kept:
            kept.close()

    def ask(self, kept, number):
        """One request; the connection, unless the answer says that it ends."""
        kept.sendall(f"GET /{number} HTTP/1.1\r\nHost: {self.host}\r\nX-Number: {number}\r\n\r\n".encode())
        status, fields, body = answer(kept)
        if (status, body) == (200, number.encode()):
            with self.lock:
                self.answered.add(number)
        else:
            self.problem("wrong", number, f"{status} {body[:80]!r}")
        if fields.get("connection", "").lower() != "close":
            return kept
        kept.close()
        return None

    def problem(self, kind, number, what):
        with self.lock:
            self.problems.append((kind, time.time(), number, str(what)))

    def goes_on(self, more=50, within=60):
        """Waits until so many more are answered."""
        until, before = time.monotonic() + within, len(self.answered)
        while len(self.answered) < before + more:
            if time.monotonic() > until:
                raise AssertionError(f"{self.name}: no {more} answers within {within} s: {self.problems[-3:]}")
            time.sleep(0.1)

    def of(self, *kinds):
        """The problems of these kinds."""
        return [problem for problem in self.problems if problem[0] in kinds]


def answer(kept):
    """Status, fields by name in lower case, and body; ValueError where it ends before it is whole."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += more(kept)
    head, body = data.split(b"\r\n\r\n", 1)
    first, *lines = head.decode("latin-1").split("\r\n")
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = int(fields["content-length"]) if "content-length" in fields else None
    if length is None:
        raise ValueError(f"an answer without a length: {first}")
    while len(body) < length:
        body += more(kept)
    return int(first.split()[1]), fields, body


def more(kept):
    data = kept.recv(65536)
    if not data:
        raise ValueError("closed without an answer")
    return data
