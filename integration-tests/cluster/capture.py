"""What tcpdump wrote of the pod network: which conversations there were, and whether all of one is TLS.

Reads the classic pcap format with Ethernet frames and IPv4, which is what a bridge of pods carries.
"""

import struct
from collections import defaultdict

HANDSHAKE, LAST_TYPE = 22, 24


def frames(data):
    """The frames of a capture file."""
    magic = data[:4]
    order = {b"\xd4\xc3\xb2\xa1": "<", b"\x4d\x3c\xb2\xa1": "<", b"\xa1\xb2\xc3\xd4": ">", b"\xa1\xb2\x3c\x4d": ">"}.get(magic)
    if order is None:
        raise ValueError(f"expected a pcap file, got {magic!r}")
    link = struct.unpack(order + "I", data[20:24])[0] & 0xFFFF
    if link != 1:
        raise ValueError(f"expected Ethernet, got link type {link}")
    at = 24
    while at + 16 <= len(data):
        kept, whole = struct.unpack(order + "II", data[at + 8 : at + 16])
        if kept != whole:
            raise ValueError("the capture cuts frames: use tcpdump -s 0")
        yield data[at + 16 : at + 16 + kept]
        at += 16 + kept


def segment(frame):
    """(source, its port, destination, its port, sequence, SYN, payload) of a TCP segment; None for anything else."""
    if frame[12:14] != b"\x08\x00" or frame[23] != 6:
        return None
    ip = frame[14:]
    head = (ip[0] & 15) * 4
    # Zero where the card was to cut it up itself.
    total = struct.unpack(">H", ip[2:4])[0] or len(ip)
    source, destination = (".".join(map(str, ip[at : at + 4])) for at in (12, 16))
    tcp = ip[head:total]
    port, peer, sequence = struct.unpack(">HHI", tcp[:8])
    return source, port, destination, peer, sequence, bool(tcp[13] & 2), tcp[(tcp[12] >> 4) * 4 :]


def directions(data):
    """What was sent, by (source, port, destination, port): (whether its beginning is there, bytes up to the first gap, bytes after it)."""
    begun, parts = {}, defaultdict(dict)
    for frame in frames(data):
        it = segment(frame)
        if it is None:
            continue
        *key, sequence, syn, payload = it
        key = tuple(key)
        if syn:
            begun[key] = sequence
        if payload:
            known = parts[key].get(sequence, b"")
            parts[key][sequence] = max(known, payload, key=len)
    for key, pieces in parts.items():
        first = begun[key] + 1 if key in begun else min(pieces)
        # Sequence numbers wrap; a keepalive's byte before the first is not data.
        placed = sorted(((sequence - first) % 2**32, payload) for sequence, payload in pieces.items())
        whole, rest = bytearray(), 0
        for at, payload in placed:
            if at > 2**31:
                continue
            if at > len(whole):
                rest += len(payload)
            elif at + len(payload) > len(whole):
                whole += payload[len(whole) - at :]
        yield key, (key in begun, bytes(whole), rest)


def is_tls(whole):
    """Whether bytes are TLS records from the first to the last, beginning with a handshake. The last may be cut by the capture's end."""
    at = 0
    while at + 5 <= len(whole):
        kind, major, length = whole[at], whole[at + 1], struct.unpack(">H", whole[at + 3 : at + 5])[0]
        expected = kind == HANDSHAKE if at == 0 else 20 <= kind <= LAST_TYPE
        if not expected or major != 3 or length > 16384 + 256:
            return False
        at += 5 + length
    return len(whole) >= 5


class Verdict:
    """What a capture says of the traffic between the planes.

    `planes`: addresses of control planes, and of proxies. `needles`: what nobody may read anywhere. `control`: what stands in plaintext
    somewhere: a search that does not find it would not find the others either.
    """

    def __init__(self, data, control_planes, proxies, needles, control):
        self.conversations, self.bytes, self.proxies_heard, self.problems = 0, 0, set(), []
        self.control_found = False
        for (source, port, destination, peer), (begun, whole, rest) in directions(data):
            name = f"{source}:{port} > {destination}:{peer}"
            self.control_found |= control in whole
            for needle in needles:
                if needle in whole:
                    self.problems.append(f"{name}: {needle!r} in plaintext")
            ends = {source, destination}
            between = ends & control_planes and ends <= control_planes | proxies
            if not between:
                continue
            self.conversations += 1
            self.bytes += len(whole)
            self.proxies_heard |= ends & proxies
            if not begun or rest:
                self.problems.append(f"{name}: {rest} bytes after a gap, beginning {'seen' if begun else 'missed'}: not known to be TLS")
            if not is_tls(whole):
                self.problems.append(f"{name}: not TLS: {whole[:48]!r}")
