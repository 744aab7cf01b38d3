"""What the acceptance run judges by, judged: `python3 integration-tests/cluster/tests.py`."""

import io
import socket
import struct
import subprocess
import sys
import tarfile
import tempfile
import threading
import unittest
from pathlib import Path

import image
from capture import Verdict, is_tls
from load import Load

PLANE, PROXY, KUBELET = "10.0.0.2", "10.0.0.3", "10.0.0.1"
SYN, ACK = 2, 16


def record(kind, payload):
    return struct.pack(">BHH", kind, 0x0303, len(payload)) + payload


TLS = record(22, b"hello") + record(23, b"sealed")


def frame(source, port, destination, peer, sequence, flags, payload):
    address = [bytes(map(int, it.split("."))) for it in (source, destination)]
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 40 + len(payload), 0, 0, 64, 6, 0) + address[0] + address[1]
    tcp = struct.pack(">HHIIBBHHH", port, peer, sequence, 0, 5 << 4, flags, 0, 0, 0)
    return bytes(12) + b"\x08\x00" + ip + tcp + payload


def pcap(*frames):
    head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1)
    return head + b"".join(struct.pack("<IIII", 0, 0, len(it), len(it)) + it for it in frames)


def sent(whole, source=PROXY, destination=PLANE, size=4, first=2**32 - 3):
    """A connection's frames in pieces, whose sequence numbers wrap, and the last ones before the first."""
    cut = [(at, whole[at : at + size]) for at in range(0, len(whole), size)]
    data = [frame(source, 999, destination, 15010, (first + 1 + at) % 2**32, ACK, piece) for at, piece in cut]
    return [frame(source, 999, destination, 15010, first, SYN, b"")] + data[::-1] + data[:1]


PROBE = sent(b"GET /readyz HTTP/1.1", source=KUBELET)


def verdict(*frames):
    return Verdict(pcap(*frames, *PROBE), {PLANE}, {PROXY}, [b"firth.config.v1"], b"GET /readyz HTTP/1.1")


class Captures(unittest.TestCase):
    def test_tls_between_the_planes_is_fine_and_known_to_have_been_seen(self):
        seen = verdict(*sent(TLS))
        self.assertEqual((seen.problems, seen.conversations, seen.bytes), ([], 1, len(TLS)))
        self.assertEqual((seen.proxies_heard, seen.control_found), ({PROXY}, True))

    def test_plaintext_between_the_planes_is_not(self):
        for whole in (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", TLS + b"now in the open", record(23, b"no handshake")):
            problems = verdict(*sent(whole)).problems
            self.assertTrue(any("not TLS" in it for it in problems), (whole, problems))

    def test_a_needle_is_found_wherever_it_is_even_cut_in_two(self):
        for destination in (PLANE, "10.0.0.9"):
            problems = verdict(*sent(record(22, b"/firth.config.v1.ConfigStream"), destination=destination)).problems
            self.assertTrue(any("in plaintext" in it for it in problems), problems)

    def test_what_was_not_captured_whole_is_not_called_fine(self):
        syn, *data = sent(TLS)
        self.assertIn("beginning missed", verdict(*data).problems[0])
        lacking = [it for it in data if it != data[2]]
        self.assertIn("after a gap", verdict(syn, *lacking).problems[0])

    def test_others_traffic_is_no_matter_and_no_evidence(self):
        seen = verdict(*sent(b"GET /metrics", destination="10.0.0.9"))
        self.assertEqual((seen.problems, seen.conversations, seen.proxies_heard), ([], 0, set()))

    def test_a_cut_file_or_a_cut_frame_is_refused(self):
        for data in (b"nothing", pcap(*PROBE)[:24] + struct.pack("<IIII", 0, 0, 4, 99) + b"cuts"):
            self.assertRaises(ValueError, Verdict, data, set(), set(), [], b"")

    def test_records(self):
        self.assertTrue(is_tls(TLS) and is_tls(TLS[:-3]))
        self.assertFalse(is_tls(b"") or is_tls(b"\x16") or is_tls(record(22, b"x") + b"\x17\x02\x00\x00\x01x"))


class Origin:
    """Answers each connection by a script: what it says to each request, None to close."""

    def __init__(self, *script):
        self.script, self.listener = list(script), socket.create_server(("127.0.0.1", 0))
        self.address = self.listener.getsockname()
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            stream = self.listener.accept()[0]
            while asked := stream.recv(4096):
                number = asked.split(b"X-Number: ")[1].split(b"\r\n")[0]
                said = self.script.pop(0) if self.script else b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s"
                if said is None:
                    break
                stream.sendall(said % (len(number), number) if b"%s" in said else said)
            stream.close()


def problems(*script, more=3):
    origin = Origin(*script)
    with Load("x", origin.address, "a.test", clients=1) as load:
        load.goes_on(more)
    return load


class Ledgers(unittest.TestCase):
    def test_what_is_answered_with_its_number_is_fine(self):
        load = problems()
        self.assertEqual(load.problems, [])
        self.assertTrue({"x.0", "x.1", "x.2"} <= load.answered)

    def test_a_close_after_the_request_is_a_loss(self):
        load = problems(None)
        self.assertEqual([(kind, number) for kind, _, number, _ in load.problems], [("lost", "x.0")])

    def test_another_answer_than_asked_for_is_wrong(self):
        for said in (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nx.7"):
            self.assertEqual([kind for kind, *_ in problems(said).problems], ["wrong"])

    def test_a_cut_answer_is_a_loss(self):
        load = problems(b"HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\nx", None)
        self.assertIn("lost", [kind for kind, *_ in load.problems])

    def test_who_says_that_it_closes_loses_nothing(self):
        said = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"
        self.assertEqual(problems(said, said).problems, [])

    def test_nobody_there_is_unreachable(self):
        with socket.create_server(("127.0.0.1", 0)) as gone:
            address = gone.getsockname()
        with Load("x", address, "a.test", clients=1) as load:
            self.assertRaises(AssertionError, load.goes_on, 1, 1)
        self.assertEqual({kind for kind, *_ in load.problems}, {"unreachable"})


class Images(unittest.TestCase):
    def test_a_binary_has_its_loader_beside_it_and_the_proxy_its_capability(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in image.BINARIES:
                (Path(folder) / name).write_bytes(Path("/bin/true").read_bytes())
            with tarfile.open(fileobj=io.BytesIO(image.layer(folder))) as tar:
                names = {info.name for info in tar}
                said = tar.getmember("firth-data-plane").pax_headers["SCHILY.xattr.security.capability"]
                self.assertTrue(set(image.BINARIES) <= names)
                self.assertTrue({it.lstrip("/") for it in image.libraries("/bin/true")} <= names)
        self.assertEqual(said.encode(), bytes.fromhex("0100000200040000000000000000000000000000"))


class Skipping(unittest.TestCase):
    def test_where_there_is_no_cluster_it_says_so_and_ends_with_75(self):
        here = {"PATH": "/nowhere", "HOME": "/nowhere", "FIRTH_MINI_CLUSTER": "/nowhere/cluster"}
        done = subprocess.run([sys.executable, Path(__file__).parent / "run"], env=here, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout.split(":")[0]), (75, "SKIPPED"), done)


if __name__ == "__main__":
    unittest.main()
