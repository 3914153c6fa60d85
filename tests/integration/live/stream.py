# SPDX-License-Identifier: Apache-2.0
"""Clients of the live page without a browser: they read the stream, or connect and never read."""
import os
import selectors
import socket
import subprocess
import time

from kiln import agent as kiln_agent


def connect(port, small=False):
    s = socket.socket()
    if small:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    s.connect(("127.0.0.1", port))
    return s


def ask(port, request, seconds=60):
    """Sends a raw HTTP request; the status code, or 0 when the connection ends without an answer."""
    with connect(port) as s:
        s.settimeout(seconds)
        try:
            s.sendall(request if isinstance(request, bytes) else request.encode())
        except OSError:
            pass  # the server has rejected the request before its end
        answer = b""
        try:
            while b"\r\n" not in answer:
                data = s.recv(4096)
                if not data:
                    break
                answer += data
        except ConnectionError:
            pass
    return int(answer.split()[1]) if answer.startswith(b"HTTP/1.") else 0


class Watchers:
    """N clients of the stream on one thread: each reads all that comes."""

    def __init__(self, port, n):
        self.selector = selectors.DefaultSelector()
        self.received = [0] * n
        self.sockets = []
        for i in range(n):
            s = connect(port)
            s.sendall(b"GET /api/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
            s.setblocking(False)
            self.selector.register(s, selectors.EVENT_READ, i)
            self.sockets.append(s)

    def read_for(self, seconds):
        """Reads for SECONDS; the number of bytes that each client received."""
        before, end = list(self.received), time.monotonic() + seconds
        while time.monotonic() < end:
            for key, _ in self.selector.select(max(end - time.monotonic(), 0)):
                data = key.fileobj.recv(1 << 20)
                assert data, f"client {key.data} was dropped after {self.received[key.data]} bytes"
                self.received[key.data] += len(data)
        return [now - then for now, then in zip(self.received, before)]

    def close(self):
        for s in self.sockets:
            s.close()
        self.selector.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def feed_binary():
    if os.environ.get("KILN_LIVE_FEED"):
        return os.environ["KILN_LIVE_FEED"]
    found = [os.path.join(kiln_agent.ROOT, "build", preset, *where, "kiln-live-feed") for preset in ("release", "dev")
             for where in ((), ("bin",), ("tests", "integration", "live"))]
    found = [path for path in found if os.path.exists(path)]
    if not found:
        raise FileNotFoundError("no kiln-live-feed: set KILN_LIVE_FEED or build a preset")
    return found[0]


class Feed:
    """The page's server with synthetic samples: STACKS stacks in every window of 1 s, ADDED new ones in every fifth."""

    def __init__(self, stacks, added, seconds):
        self.process = subprocess.Popen([feed_binary(), str(stacks), str(added), str(seconds)],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()
        self.port = int(self.url.rsplit(":", 1)[1])
        self.lines = []
        os.set_blocking(self.process.stdout.fileno(), False)

    def said(self):
        """The lines that the feed has printed after its address."""
        self.lines += [line.strip() for line in self.process.stdout.readlines()]
        return self.lines

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
