# SPDX-License-Identifier: Apache-2.0
"""The exporters against servers that misbehave, by the OTLP specification (1.10): retryable requests are sent again with
the very same bytes, all others are not; memory stays bounded."""

import email.utils
import gzip
import socket
import threading
import time
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
import pytest
from google.protobuf import any_pb2, duration_pb2
from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2

import otlp_decode
from conftest import expected, free_port

METHOD = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export"
Response = profiles_service_pb2.ExportProfilesServiceResponse


def partial(rejected, words):
    r = Response()
    r.partial_success.rejected_profiles = rejected
    r.partial_success.error_message = words
    return r.SerializeToString()


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def status_details(code, words, retry=None):
    """Encodes a google.rpc.Status by hand: the package with its type is not installed."""
    out = varint(1 << 3) + varint(code) + field(2, words.encode())
    if retry is not None:
        delay = duration_pb2.Duration()
        delay.FromMilliseconds(int(retry * 1000))
        info = any_pb2.Any(type_url="type.googleapis.com/google.rpc.RetryInfo",
                           value=field(1, delay.SerializeToString()))
        out += field(3, info.SerializeToString())
    return out


class Grpc:
    """A gRPC server that answers each request with the next entry of `script`, and all further ones with the last entry."""

    def __init__(self, script):
        self.script, self.requests, self.times, self.metadata = list(script), [], [], []
        self.released = threading.Event()
        self.server = grpc.server(futures.ThreadPoolExecutor(8),
                                  options=[("grpc.max_receive_message_length", 16 << 20)])
        self.server.add_generic_rpc_handlers([self])
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()

    def service(self, details):
        if details.method != METHOD:
            return None
        return grpc.unary_unary_rpc_method_handler(self.answer)

    def answer(self, data, context):
        self.requests.append(data)
        self.times.append(time.monotonic())
        self.metadata.append(dict(context.invocation_metadata()))
        say = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(say, bytes):
            return say
        if say == "never":
            self.released.wait(60)
            return b""
        code, trailing = say if isinstance(say, tuple) else (say, None)
        if trailing is not None:
            context.set_trailing_metadata([("grpc-status-details-bin", trailing)])
        context.abort(code, "as the script says")

    @property
    def args(self):
        return ["--protocol", "grpc", "--endpoint", f"127.0.0.1:{self.port}", "--insecure"]

    def close(self):
        self.released.set()
        self.server.stop(0)


class Http:
    """As Grpc, for HTTP. Entries of `script`: (status, headers, body), "never", "endless" or bytes to write raw."""

    def __init__(self, script):
        self.script, self.requests, self.times, self.metadata = list(script), [], [], []
        self.released = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                outer.requests.append(body)
                outer.times.append(time.monotonic())
                outer.metadata.append({**{k.lower(): v for k, v in self.headers.items()},
                                       ":path": self.path})
                say = outer.script.pop(0) if len(outer.script) > 1 else outer.script[0]
                if say == "never":
                    outer.released.wait(60)
                    self.close_connection = True
                    return
                if isinstance(say, bytes):
                    self.wfile.write(say)
                    self.close_connection = True
                    return
                if say == "endless":
                    self.send_response(200)
                    self.end_headers()
                    try:
                        while not outer.released.is_set():
                            self.wfile.write(b"x" * 65536)
                    except OSError:
                        pass
                    self.close_connection = True
                    return
                code, headers, reply = say
                self.send_response(code)
                for k, v in headers.items():
                    self.send_header(k, v)
                self.send_header("content-length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def args(self):
        return ["--protocol", "http", "--endpoint", f"http://127.0.0.1:{self.port}"]

    def close(self):
        self.released.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def serve():
    servers = []

    def start(kind, *script):
        servers.append(kind(script))
        return servers[-1]

    yield start
    for s in servers:
        s.close()


def names(requests):
    plain = [gzip.decompress(r) if r[:2] == b"\x1f\x8b" else r for r in requests]
    return [s["attributes"]["thread.name"] for data in plain for s in otlp_decode.decode(data)]


C = grpc.StatusCode
RETRYABLE = [C.CANCELLED, C.DEADLINE_EXCEEDED, C.ABORTED, C.OUT_OF_RANGE, C.UNAVAILABLE, C.DATA_LOSS]
FINAL = [C.UNKNOWN, C.INVALID_ARGUMENT, C.NOT_FOUND, C.ALREADY_EXISTS, C.PERMISSION_DENIED,
         C.UNAUTHENTICATED, C.FAILED_PRECONDITION, C.UNIMPLEMENTED, C.INTERNAL, C.RESOURCE_EXHAUSTED]


@pytest.mark.parametrize("code", RETRYABLE, ids=lambda c: c.name)
def test_grpc_retryable_codes_are_tried_again(serve, send, code):
    server = serve(Grpc, code, code, b"")
    end = send(*server.args).end()
    assert end["sent"] == end["made"] and end["retries"] == 2 and end["drops"]["all"] == 0
    assert len(server.requests) == 3 and len(set(server.requests)) == 1


@pytest.mark.parametrize("code", FINAL, ids=lambda c: c.name)
def test_grpc_final_codes_are_not(serve, send, code):
    server = serve(Grpc, code, b"")
    end = send(*server.args, "--batches", 2, "--generation", "v1.11").end()
    assert end["retries"] == 0 and end["drops"]["rejected"] == 19 and end["sent"] == 19
    assert len(server.requests) == 2 and names(server.requests[1:])[0] == "id-1-0"


def test_grpc_retry_info_is_obeyed(serve, send):
    exhausted = (C.RESOURCE_EXHAUSTED, status_details(8, "slow down", retry=1.2))
    server = serve(Grpc, exhausted, b"")
    s = send(*server.args, "--initial-ms", 1)
    end = s.end()
    assert end["sent"] == end["made"] and end["retries"] == 1
    # The client must not retry earlier than the server asked for.
    assert server.times[1] - server.times[0] >= 1.1
    assert end["uncertain"] == 0


def test_grpc_details_without_retry_info_are_final(serve, send):
    server = serve(Grpc, (C.RESOURCE_EXHAUSTED, status_details(8, "no")), b"")
    assert send(*server.args).end()["drops"]["rejected"] == 19


@pytest.mark.parametrize("details", [b"\xff" * 40, b"", field(3, b"\xff\xff"), b"\x1a\xff\xff\xff\xff\x0f"])
def test_grpc_garbage_details_change_nothing(serve, send, details):
    server = serve(Grpc, (C.UNAVAILABLE, details), b"")
    end = send(*server.args).end()
    assert end["sent"] == end["made"] and end["retries"] == 1
    server = serve(Grpc, (C.RESOURCE_EXHAUSTED, details), b"")
    assert send(*server.args).end()["drops"]["rejected"] == 19


@pytest.mark.parametrize("kind", [Grpc, Http])
def test_partial_success_is_counted_and_never_tried_again(serve, send, kind):
    say = partial(3, "bad \n profiles")
    server = serve(kind, say if kind is Grpc else (200, {}, say))
    s = send(*server.args, "--batches", 4)
    end = s.end()
    assert len(server.requests) == 4 and end["partial"] == 4 and end["rejected_profiles"] == 12
    assert end["retries"] == 0 and end["sent"] == end["made"]
    assert sum("rejected 3 profiles: bad   profiles" in line for line in s.log) == 1, s.log


@pytest.mark.parametrize("kind", [Grpc, Http])
@pytest.mark.parametrize("garbage", [b"\xff\xff\xff", b"<html>", field(1, b"\x08")])
def test_a_garbage_body_of_a_success_is_a_success(serve, send, kind, garbage):
    server = serve(kind, garbage if kind is Grpc else (200, {}, garbage))
    end = send(*server.args).end()
    assert len(server.requests) == 1 and end["sent"] == end["made"] and end["rejected_profiles"] == 0


@pytest.mark.parametrize("kind", [Grpc, Http])
def test_an_answer_that_never_comes_ends_at_the_timeout(serve, send, kind):
    server = serve(kind, "never", b"" if kind is Grpc else (200, {}, b""))
    end = send(*server.args, "--timeout-ms", 2000).end()
    assert end["sent"] == end["made"] and end["retries"] == 1 and end["uncertain"] == 1
    assert len(server.requests) == 2 and server.requests[0] == server.requests[1]


@pytest.mark.parametrize("kind", [Grpc, Http])
def test_the_queue_is_bounded_and_drops_the_oldest(serve, send, kind):
    server = serve(kind, "never", b"" if kind is Grpc else (200, {}, b""))
    s = send(*server.args, "--timeout-ms", 3000, "--batches", 30, "--interval-ms", 20,
             "--queue-size", 5)
    end = s.end()
    assert max(line["queue_requests"] for line in s.lines) == 5
    # Request 0 was in flight all the time; of the queued ones the last four are left.
    got = names(server.requests[1:])
    assert sorted({int(n.split("-")[1]) for n in got}) == [0, 26, 27, 28, 29]
    assert end["sent"] == 5 * 19 and end["drops"]["the queue is full"] == 25 * 19
    assert end["sent"] + end["drops"]["all"] == end["made"]


@pytest.mark.parametrize("kind", [Grpc, Http])
def test_bytes_in_memory_are_bounded(serve, send, kind):
    server = serve(kind, "never")
    s = send(*server.args, "--timeout-ms", 500, "--batches", 40, "--interval-ms", 20, "--bloat",
             2000, "--samples", 50, "--max-bytes", 300000, "--flush-ms", 600)
    end = s.end()
    assert 200000 < max(line["queue_bytes"] for line in s.lines) <= 300000
    assert end["sent"] == 0 and end["drops"]["all"] == end["made"]


def test_max_elapsed_time_ends_refusals_but_not_absence(serve, send):
    busy = (C.RESOURCE_EXHAUSTED, status_details(8, "slow down", retry=0.05))
    server = serve(Grpc, busy)
    end = send(*server.args, "--max-elapsed-ms", 700, "--flush-ms", 5000).end()
    assert end["drops"]["retry.max_elapsed_time is over"] == 19
    server = serve(Grpc, *[C.UNAVAILABLE] * 6, b"")
    end = send(*server.args, "--max-elapsed-ms", 300, "--initial-ms", 150).end()
    assert end["sent"] == end["made"] and end["retries"] == 6


@pytest.mark.parametrize("code", [429, 502, 503, 504])
def test_http_retryable_codes_are_tried_again(serve, send, code):
    server = serve(Http, (code, {}, b""), (code, {}, b"<html>"), (200, {}, b""))
    end = send(*server.args).end()
    assert end["sent"] == end["made"] and end["retries"] == 2
    assert len(server.requests) == 3 and len(set(server.requests)) == 1


@pytest.mark.parametrize("code", [301, 302, 307, 308, 400, 401, 403, 404, 413, 415, 500, 501])
def test_http_final_codes_are_not(serve, send, code):
    elsewhere = serve(Http, (200, {}, b""))
    server = serve(Http, (code, {"location": f"http://127.0.0.1:{elsewhere.port}/"},
                          status_details(3, "what is\x07this")), (200, {}, b""))
    s = send(*server.args, "--batches", 2, "--generation", "v1.11")
    end = s.end()
    assert end["retries"] == 0 and end["drops"]["rejected"] == 19 and end["sent"] == 19
    assert len(server.requests) == 2 and elsewhere.requests == []
    assert any(f"HTTP {code}: what is this" in line for line in s.log), s.log


def test_a_failure_is_told_with_what_the_body_says(serve, send):
    server = serve(Http, (404, {"content-type": "text/plain"}, b"404 page not found\n"), (200, {}, b""))
    s = send(*server.args, "--batches", 2, "--generation", "v1.11")
    assert s.end()["drops"]["rejected"] == 19
    assert any("HTTP 404: 404 page not found (no profiles at this URL: a Collector wants --feature-gates=" in line and
               "`profiles_endpoint`)" in line for line in s.log), s.log


def test_a_receiver_without_profiles_is_told_what_it_lacks(serve, send):
    s = send(*serve(Grpc, C.UNIMPLEMENTED, C.UNIMPLEMENTED).args, "--batches", 1)
    assert s.end()["drops"]["rejected"] == 19
    assert any("UNIMPLEMENTED: " in line and "a Collector wants --feature-gates=service.profilesSupport" in line
               for line in s.log), s.log


@pytest.mark.parametrize("kind, refusal", [(Http, (400, {}, b"")), (Grpc, C.INTERNAL)], ids=["http", "grpc"])
def test_what_is_refused_in_one_form_is_sent_in_the_other(serve, send, kind, refusal):
    server = serve(kind, refusal, b"") if kind is Grpc else serve(kind, refusal, (200, {}, b""))
    s = send(*server.args, "--batches", 2)
    end = s.end()
    assert end["sent"] == end["made"] and end["retries"] == 0 and end["drops"]["rejected"] == 0
    assert any("takes OTLP profiles as opentelemetry-proto v1.8 and v1.9" in line for line in s.log), s.log


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_http_retry_after_is_obeyed(serve, send, form):
    # A date has a resolution of one second: a date 3 s ahead is at least 2 s away.
    after = "2" if form == "seconds" else email.utils.formatdate(time.time() + 3, usegmt=True)
    asked = time.time()
    server = serve(Http, (503, {"retry-after": after}, b""), (200, {}, b""))
    end = send(*server.args, "--initial-ms", 1).end()
    assert end["sent"] == end["made"] and end["retries"] == 1
    if form == "seconds":
        assert server.times[1] - server.times[0] >= 1.9
    else:
        assert time.time() - asked >= 1.9


def test_http_garbage_retry_after_is_ignored(serve, send):
    server = serve(Http, (503, {"retry-after": "soon, 99999999999999999999"}, b""), (200, {}, b""))
    assert send(*server.args).end()["sent"] == 19


@pytest.mark.parametrize("raw", [b"\x00\x01garbage\r\n\r\n", b"", b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nshort",
                                 b"220 smtp ready\r\n"])
def test_http_garbage_instead_of_an_answer_is_tried_again(serve, send, raw):
    server = serve(Http, raw, (200, {}, b""))
    end = send(*server.args).end()
    assert end["sent"] == end["made"] and end["retries"] == 1 and end["uncertain"] == 1
    assert len(server.requests) == 2


def test_http_an_endless_answer_ends_at_the_timeout(serve, send):
    server = serve(Http, "endless", (200, {}, b""))
    end = send(*server.args, "--timeout-ms", 2000).end()
    assert end["sent"] == end["made"] and end["retries"] == 1


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_server_of_another_protocol_is_survived(send, protocol):
    """The server sends bytes that are neither TLS nor HTTP as soon as a connection is made."""
    listener = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def answer():
        listener.settimeout(0.1)
        while not stop.is_set():
            try:
                client, _ = listener.accept()
            except OSError:
                continue
            client.sendall(b"SSH-2.0-OpenSSH_9.2\r\n" + b"\xff" * 300)
            client.close()

    thread = threading.Thread(target=answer)
    thread.start()
    port = listener.getsockname()[1]
    end = send("--protocol", protocol, "--endpoint", f"http://127.0.0.1:{port}", "--flush-ms",
               1500).end()
    stop.set()
    thread.join()
    listener.close()
    assert end["sent"] == 0 and end["retries"] >= 1
    assert end["drops"]["all"] == end["drops"]["the agent ends"] == end["made"]


def test_grpc_headers_and_path(serve, send):
    server = serve(Grpc, b"")
    send(*server.args, "--header", "Authorization=Bearer x", "--header", "X-Scope-OrgID=team").end()
    metadata = server.metadata[0]
    assert metadata["authorization"] == "Bearer x" and metadata["x-scope-orgid"] == "team"
    assert metadata["user-agent"].startswith("kiln-agent/")


def test_http_headers_and_path(serve, send):
    server = serve(Http, (200, {}, b""))
    send(*server.args, "--header", "Authorization=Bearer x", "--header", "X-Scope-OrgID=team").end()
    metadata = server.metadata[0]
    assert metadata[":path"] == "/v1development/profiles"
    assert metadata["content-type"] == "application/x-protobuf"
    assert metadata["content-encoding"] == "gzip" and "expect" not in metadata
    assert metadata["authorization"] == "Bearer x" and metadata["x-scope-orgid"] == "team"
    assert metadata["user-agent"].startswith("kiln-agent/")
    assert names(server.requests) == list(expected(1, 10))


def test_secrets_are_in_no_log_line(send):
    port = free_port()
    for args in (["--protocol", "http", "--endpoint", f"http://user:hunter2@127.0.0.1:{port}"],
                 ["--protocol", "grpc", "--endpoint", f"127.0.0.1:{port}", "--insecure"]):
        s = send(*args, "--header", "authorization=hunter2", "--flush-ms", 300)
        s.end()
        assert s.log and "hunter2" not in "".join(s.log)


def test_a_server_that_comes_late_gets_everything_in_order(serve, send):
    server = serve(Grpc, *[C.UNAVAILABLE] * 4, b"")
    s = send(*server.args, "--batches", 20, "--interval-ms", 20)
    s.end()
    batches = [int(n.split("-")[1]) for n in names(server.requests[4:])]
    assert batches == sorted(batches) and len(batches) == 200
    assert sum("will retry" in line for line in s.log) == 1 and len(s.log) == 3, s.log  # ... recovered, takes profiles


def test_the_end_waits_for_the_receiver_until_the_deadline(serve, send):
    server = serve(Grpc, C.UNAVAILABLE, b"")
    s = send(*server.args, "--initial-ms", 60000, "--max-interval-ms", 60000, "--batches", 3,
             "--interval-ms", 300)
    end = s.end()
    assert end["sent"] == end["made"], "flush tries at once, whatever the backoff says"
