"""Requests that are broken on the wire: cut short, too long, too slow, or no HTTP at all."""

import random
import socket
import time
from collections.abc import Callable

Break = Callable[[random.Random], list[bytes]]

GOOD_BODY = b'{"texts": ["great soup"]}'


def request(body: bytes = GOOD_BODY, path: bytes = b"/predict", headers: bytes = b"") -> bytes:
    head = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%s\r\n" % (path, len(body), headers)
    return head + body


def _half(draw: random.Random) -> list[bytes]:
    whole = request()
    return [whole[: draw.randrange(1, len(whole))]]


def _wrong_length(draw: random.Random) -> list[bytes]:
    said = draw.choice(
        [b"1", b"5", b"24", b"26", b"999", b"99999999999", b"-1", b"1e3", b"0x9", b"", b"25, 25", b"+25"]
    )
    return [b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: " + said + b"\r\n\r\n" + GOOD_BODY]


def _two_lengths(draw: random.Random) -> list[bytes]:
    more = draw.choice(
        [b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: zip\r\n"]
    )
    return [request(headers=more)]


def _huge_head(draw: random.Random) -> list[bytes]:
    kind = draw.randrange(3)
    if kind == 0:
        return [request(headers=b"X-Long: " + b"a" * draw.randrange(70_000, 400_000) + b"\r\n")]
    if kind == 1:
        return [request(headers=b"".join(b"X-%d: y\r\n" % n for n in range(20_000)))]
    return [request(path=b"/" + b"p" * 100_000)]


def _bad_chunks(draw: random.Random) -> list[bytes]:
    head = b"POST /predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = [
        b"zz\r\n{}\r\n",
        b"5\r\n{}",
        b"-1\r\n\r\n",
        b"ffffffffffffffffff\r\n{}\r\n",
        b"2\r\n{}XX",
        b"2;" + b"e" * 99_999,
    ]
    return [head, draw.choice(chunks)]


def _bad_utf8(draw: random.Random) -> list[bytes]:
    text = bytes(draw.randrange(128, 256) for _ in range(draw.randrange(1, 40)))
    return [request(b'{"texts": ["' + text + b'"]}')]


def _bad_json(draw: random.Random) -> list[bytes]:
    depth = draw.randrange(1, 100_000)
    bodies = [
        b"[" * depth,
        b'{"texts":' * min(depth, 9_000),
        b"\x00",
        b"null",
        b'{"texts": ["' + b"\\u0000" * 99 + b'"]}',
        b"1" * 9_999,
    ]
    return [request(draw.choice(bodies))]


def _not_http(draw: random.Random) -> list[bytes]:
    starts = [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET\r\n\r\n",
        b"\r\n" * 50,
        b"GET / HTTP/9.9\r\n\r\n",
        b"SSH-2.0-x\r\n",
    ]
    return [draw.choice(starts), bytes(draw.randrange(256) for _ in range(draw.randrange(64)))]


def _bad_head(draw: random.Random) -> list[bytes]:
    lines = [
        b"Host x\r\n",
        b": y\r\n",
        b"A\x00B: y\r\n",
        b"X: a\rb\r\n",
        b" folded: y\r\n",
        b"X: \xff\xfe\r\n",
    ]
    return [request(headers=draw.choice(lines))]


def _bad_target(draw: random.Random) -> list[bytes]:
    paths = [
        b"/%",
        b"/%ff%fe",
        b"//",
        b"/\xff",
        b"*",
        b"http://[::1",
        b"/v2/models/../../etc/passwd",
        b"/predict?" + b"a=" * 999,
    ]
    return [request(path=draw.choice(paths))]


def _odd_method(draw: random.Random) -> list[bytes]:
    method = draw.choice([b"CONNECT", b"TRACE", b"OPTIONS", b"PRI", b"PURGE", b"get", b"X" * 999])
    return [request().replace(b"POST", method, 1)]


def _pipelined(draw: random.Random) -> list[bytes]:
    return [request() * draw.randrange(2, 30), request()[: draw.randrange(1, 40)]]


def _upgrade(draw: random.Random) -> list[bytes]:
    return [
        request(headers=b"Connection: Upgrade\r\nUpgrade: " + draw.choice([b"websocket", b"h2c"]) + b"\r\n")
    ]


def _expects(draw: random.Random) -> list[bytes]:
    return [request(headers=b"Expect: " + draw.choice([b"100-continue", b"200-ok"]) + b"\r\n")]


BREAKS: list[Break] = [
    _half, _wrong_length, _two_lengths, _huge_head, _bad_chunks, _bad_utf8, _bad_json, _not_http, _bad_head,
    _bad_target, _odd_method, _pipelined, _upgrade, _expects,
]  # fmt: skip


def send_broken(port: int, draw: random.Random) -> bytes:
    """Send one broken request, wait a moment for what comes back, and leave."""
    pieces = draw.choice(BREAKS)(draw)
    got = b""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as wire:
        try:
            for piece in pieces:
                wire.sendall(piece)
            if draw.random() < 0.5:
                wire.shutdown(socket.SHUT_WR)
            wire.settimeout(0.02 if draw.random() < 0.8 else 0.2)
            while piece := wire.recv(65_536):
                got += piece
        except OSError:  # it has closed the connection, or has nothing more to say
            pass
    return got


def slow_clients(port: int, count: int) -> list[socket.socket]:
    """Connections that have sent a part of a request, and will send no more."""
    wires = []
    for number in range(count):
        wire = socket.create_connection(("127.0.0.1", port), timeout=60)
        wire.sendall(request()[:-5] if number % 2 else request()[: number % 60])
        wires.append(wire)
    return wires


def closed_within(wires: list[socket.socket], seconds: float) -> int:
    """How many connections the other side has closed by then."""
    until, closed = time.monotonic() + seconds, 0
    for wire in wires:
        wire.settimeout(max(0.01, until - time.monotonic()))
        try:
            while wire.recv(65_536):
                pass
            closed += 1
        except TimeoutError:
            pass
        except ConnectionError:
            closed += 1
        wire.close()
    return closed
