# SPDX-License-Identifier: Apache-2.0
"""Clients of the live page: many at once, clients that never read, and clients without access."""
import os
import time

import pytest

from running import Live
from stream import Feed, Watchers, ask, connect

LONG = os.environ.get("KILN_LONG") == "1"
HOST = "Host: localhost\r\n"
UPGRADE = "Connection: Upgrade\r\nUpgrade: websocket\r\n"
KEY = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
TOKEN = "the-token-of-these-tests"


@pytest.mark.alone
def test_twenty_clients_cost_little(live, busy):
    """A client costs at most 1 % of a core, and the agent's memory does not grow with the number of clients."""
    seconds = 60 if LONG else 8

    def spent(during):
        before, at = live.cpu_seconds(), time.monotonic()
        during(seconds)
        return (live.cpu_seconds() - before) / (time.monotonic() - at)

    rss = live.rss_kib()
    # A program that starts during one of the two measurements costs the agent time: then measure again.
    for _ in range(3):
        with Watchers(live.port, 20) as watchers:
            watchers.read_for(4)  # meanwhile the agent builds the tables of the running programs
            with_them = spent(watchers.read_for)
            grown = live.rss_kib() - rss
            assert live.metric("kiln_live_clients") == 20
        alone = spent(time.sleep)
        share = (with_them - alone) / 20 * 100
        print(f"20 clients, {seconds} s: CPU {alone * 100:.2f} % of a core alone, {with_them * 100:.2f} % with them: "
              f"{share:.3f} % each; RSS {grown} KiB more; {sum(watchers.received) / 20 / 1024:.0f} KiB to each")
        assert grown < 32 << 10
        assert min(watchers.received) > 0
        if share <= 1:
            break
    assert share <= 1


def test_a_client_that_never_reads_is_dropped_and_counted():
    with Feed(50000, 0, 300) as feed, connect(feed.port, small=True) as s, Watchers(feed.port, 1) as other:
        s.sendall(f"GET /api/stream HTTP/1.1\r\n{HOST}\r\n".encode())
        # The stream exceeds the socket buffers: after ten seconds without progress the server drops the client.
        end = time.monotonic() + 200
        while not feed.said() and time.monotonic() < end:
            other.read_for(1)
        assert feed.said() == ["dropped 1"]
        assert other.read_for(3)[0] > 0, "those that read go on"


@pytest.fixture(scope="module")
def closed(tmp_path_factory):
    """An agent whose page requires a token."""
    dir = tmp_path_factory.mktemp("closed")
    (dir / "token").write_text(TOKEN + "\n")
    with Live(dir / "stacks.folded", more=f", token_file: {dir / 'token'}") as a:
        yield a


@pytest.mark.parametrize("what, request_, want", [
    ("no token", f"GET /api/stream HTTP/1.1\r\n{HOST}\r\n", {401}),
    ("wrong token", f"GET /api/stream HTTP/1.1\r\n{HOST}Authorization: Bearer {TOKEN[:-1]}x\r\n\r\n", {401}),
    ("token in the query", f"GET /api/profile?token={TOKEN} HTTP/1.1\r\n{HOST}\r\n", {401}),
    ("another scheme", f"GET /api/profile HTTP/1.1\r\n{HOST}Authorization: Basic {TOKEN}\r\n\r\n", {401}),
    ("right token", f"GET /api/profile HTTP/1.1\r\n{HOST}Authorization: Bearer {TOKEN}\r\n\r\n", {200}),
    ("foreign Origin, right token",
     f"GET /api/profile HTTP/1.1\r\n{HOST}Authorization: Bearer {TOKEN}\r\nOrigin: https://evil.org\r\n\r\n", {403}),
    ("Origin null", f"GET /api/stream HTTP/1.1\r\n{HOST}Origin: null\r\n\r\n", {403}),
    ("preflight", f"OPTIONS /api/stream HTTP/1.1\r\n{HOST}Origin: https://evil.example\r\n"
     "Access-Control-Request-Method: GET\r\n\r\n", {405}),
    ("name of another site", "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", {403}),
    ("path traversal", f"GET /../../../../etc/passwd HTTP/1.1\r\n{HOST}\r\n", {404}),
    ("path traversal, encoded", f"GET /%2e%2e/%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\n{HOST}\r\n", {404}),
    ("path traversal, slashes encoded", f"GET /..%2f..%2fetc%2fpasswd HTTP/1.1\r\n{HOST}\r\n", {404}),
    ("path traversal, backslashes", f"GET /..\\..\\etc\\passwd HTTP/1.1\r\n{HOST}\r\n", {404}),
    ("NUL in the path", f"GET /app.js%00.html HTTP/1.1\r\n{HOST}\r\n", {400, 403, 404, 0}),
    ("long path", f"GET /{'a' * 3000} HTTP/1.1\r\n{HOST}\r\n", {414}),
    ("long parameter", f"GET /api/profile?process={'a' * 3000} HTTP/1.1\r\n{HOST}\r\n", {414}),
    ("long header", f"GET /api/profile HTTP/1.1\r\n{HOST}Authorization: Bearer {'a' * 2000}\r\n\r\n", {400}),
    ("headers without end", f"GET / HTTP/1.1\r\n{HOST}X: {'a' * 40000}\r\n\r\n", {0, 400, 431}),
    ("oversized body", f"POST /api/stream HTTP/1.1\r\n{HOST}Content-Length: 99999999999\r\n\r\n", {405, 413}),
    ("WebSocket", f"GET /api/stream HTTP/1.1\r\n{HOST}{UPGRADE}{KEY}Sec-WebSocket-Version: 13\r\n\r\n", {501}),
    ("WebSocket with an oversized frame",
     f"GET /api/stream HTTP/1.1\r\n{HOST}{UPGRADE}{KEY}Sec-WebSocket-Version: 13\r\n\r\n".encode()
     + b"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0" + bytes(70000), {501, 0}),
    ("WebSocket without a key", f"GET /api/stream HTTP/1.1\r\n{HOST}{UPGRADE}\r\n", {501}),
    ("WebSocket of another version",
     f"GET /api/stream HTTP/1.1\r\n{HOST}{UPGRADE}{KEY}Sec-WebSocket-Version: 7\r\n\r\n", {501}),
    ("WebSocket by POST",
     f"POST /api/stream HTTP/1.1\r\n{HOST}{UPGRADE}{KEY}Content-Length: 0\r\n\r\n", {405, 501}),
    ("Upgrade to HTTP/2", f"GET /api/stream HTTP/1.1\r\n{HOST}Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
     "HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n", {501}),
    ("Upgrade to nothing known", f"GET /api/stream HTTP/1.1\r\n{HOST}Connection: Upgrade\r\nUpgrade: x\r\n\r\n", {403}),
    ("TLS", b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03" + bytes(160), {0, 400, 403, 405}),
], ids=lambda value: value if isinstance(value, str) and "\r" not in value else "")
def test_who_may_have_what(closed, what, request_, want):
    assert ask(closed.port, request_) in want, what
    assert closed.process.poll() is None
