"""As much of HTTP/2 as clients and endpoints of the load need: frames, and fields that are written and never read."""
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4
STATUS_200 = b"\x88"

# The `:path` of requests as clients encode it: indexed name from the static table, Huffman-coded value (RFC 7541).
PATHS = {path: b"\x04" + bytes([0x80 | len(code)]) + code for path, code in (
    ("/some/page?x=1", bytes.fromhex("6107a4ac56398bfe79803f")),
    ("/assets/site.css?v=20261123", bytes.fromhex("606841528610649572211fe77804013810899f")),
    ("/items", bytes.fromhex("60c92d28")),
    ("/large", bytes.fromhex("6281d9317f")),
    ("/page", bytes.fromhex("62b1cc5f")),
    ("/chunked", bytes.fromhex("6093db5752c9")))}

# The fields that a browser sends with each request: user-agent, accept, accept-language, accept-encoding, cookie,
# referer and sec-fetch-mode, Huffman-coded, each added to the dynamic table.
BROWSER = bytes.fromhex(
    "7ab5d07f66a281b0dae053fafc087ed4ce6aadf2a7979c89c6bed4b3bdc0b405c1fda988a4ea76040080010054c26b0b29fcb01680b83f"
    "53b0497ca589d34d1f43aeba0c41a4c7a98f33a69a3fdf9a68fa1d75d0620d263d4c79a68fbed00177febe58f9fbed00177b518b2d4b70"
    "ddf45abefb4005db50929bd9abfa5242cb40d25fa523b3e94f684c9f609d4150831ea81c9432088f8e303456a5011e91b77ed44ce5a4b0"
    "483b3aff738f9d29ad171861342174950961091d89408a4148b4a549275a93c85f86a87dcd30d25f")
# The same once they are in the table, and the resulting index of the field before them.
BROWSER_AGAIN = bytes(range(0x80 | 68, 0x80 | 61, -1))
BEFORE_BROWSER = bytes([0x80 | 69])


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">BHBBI", len(payload) >> 16, len(payload) & 0xFFFF, kind, flags, stream) + payload


def frames(read):
    """Takes whole frames from a bytearray: kind, flags, stream, payload."""
    at = 0
    while len(read) - at >= 9:
        high, low, kind, flags, stream = struct.unpack_from(">BHBBI", read, at)
        end = at + 9 + (high << 16 | low)
        if len(read) < end:
            break
        yield kind, flags, stream, bytes(read[at + 9:end])
        at = end
    del read[:at]


def literal(name, value):
    """A field that goes into no table."""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def head(host, path, first):
    """The fields of a browser's GET: the first of a connection, or a later one."""
    authority = b"\x41" + bytes([len(host)]) + host.encode() if first else BEFORE_BROWSER
    return b"\x82\x87" + authority + PATHS[path] + (BROWSER if first else BROWSER_AGAIN)


def call(host, path):
    """Those of a call of gRPC."""
    fields = (("content-type", "application/grpc"), ("te", "trailers"))
    return (b"\x83\x87\x01" + bytes([len(host)]) + host.encode() + b"\x04" + bytes([len(path)]) + path.encode()
            + b"".join(literal(*it) for it in fields))
