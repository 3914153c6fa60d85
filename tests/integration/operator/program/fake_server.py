# SPDX-License-Identifier: Apache-2.0
"""An API server that can be switched to invalid answers: HTTP/1.1 on loopback, lists and watches of any kind.

`mode` is a function (request) -> None that answers every GET; good() serves `pods` pods and no other objects. cut() ends
all connections, so that clients request their watches again.
"""

import http.server
import json
import socket
import struct
import threading
import urllib.parse

PROTOBUF = "application/vnd.kubernetes.protobuf"
# The only kind with objects; all other kinds that the operator requests are empty.
PODS = "/api/v1/pods"


def field(number, content):
    """Encodes a protobuf field; CONTENT: bytes, text or a number."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    content = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def envelope(api, kind, raw):
    return b"k8s\0" + field(1, field(1, api) + field(2, kind)) + field(2, raw)


def proto_meta(name, namespace="default", labels=(), annotations=()):
    pairs = [(11, labels), (12, annotations)]
    return (field(1, name) + field(3, namespace) + field(5, "5a9aa5e3-0000-4000-8000-000000000001") + field(6, "7")
            + b"".join(field(n, field(1, k) + field(2, v)) for n, some in pairs for k, v in some))


def frame(event, raw):
    """A frame of a protobuf watch: the length, and a WatchEvent of type EVENT with object RAW."""
    body = field(1, event) + field(2, field(1, raw))
    return struct.pack(">I", len(body)) + body


def pod(name, **meta):
    return {"apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
            "metadata": {"name": name, "namespace": "default", "resourceVersion": "9", "uid": f"uid-of-{name}", **meta},
            "status": {"phase": "Running"}}


class Request(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    @property
    def query(self):
        return {k: v[0] for k, v in urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query).items()}

    @property
    def is_watch(self):
        return self.query.get("watch") in ("1", "true")

    @property
    def what(self):
        return urllib.parse.urlsplit(self.path).path

    def begin(self, content_type="application/json", status=200):
        """Begins an answer of unknown length: the body follows by write(), and ends with the connection."""
        self.close_connection = True
        self.wfile.write(f"HTTP/1.1 {status} X\r\nContent-Type: {content_type}\r\nConnection: close\r\n\r\n".encode())

    def write(self, data):
        self.wfile.write(data if isinstance(data, bytes) else data.encode())

    def say(self, status, thing):
        body = json.dumps(thing).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def hold(self):
        """Keeps the connection open until the client or cut() ends it."""
        self.connection.settimeout(None)
        try:
            self.connection.recv(1)
        except OSError:
            pass

    def answer(self, method):
        self.server.connections.add(self.connection)
        try:
            if method == "GET":
                self.server.requests += 1
                self.server.mode(self)
            else:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self.say(201 if method == "POST" else 200, {})
        except OSError:
            self.close_connection = True

    do_GET = lambda self: self.answer("GET")  # noqa: E731
    do_POST = lambda self: self.answer("POST")  # noqa: E731
    do_PATCH = lambda self: self.answer("PATCH")  # noqa: E731
    do_PUT = lambda self: self.answer("PUT")  # noqa: E731
    do_DELETE = lambda self: self.answer("DELETE")  # noqa: E731


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Request)
        self.mode, self.pods, self.connections, self.requests = self.good, 3, set(), 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, *_):
        pass

    def cut(self):
        for connection in list(self.connections):
            self.connections.discard(connection)
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def items(self, request):
        return [pod(f"p{i}") for i in range(self.pods)] if request.what == PODS else []

    def good(self, request):
        kind = request.what.rsplit("/", 1)[1]
        if "/namespaces/" in request.what and "labelSelector" not in request.query and not request.is_watch:
            request.say(404, {"kind": "Status", "code": 404, "message": "not found"})
        elif not request.is_watch:
            request.say(200, {"kind": kind + "List", "apiVersion": "v1", "metadata": {"resourceVersion": "9"},
                              "items": self.items(request)})
        else:
            request.begin()
            if "sendInitialEvents" not in request.query and request.query.get("resourceVersion") != "9":
                # The client resumes from a version that only the invalid answers had.
                request.write(json.dumps({"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "?"}}))
                return
            for item in self.items(request):  # a resumed watch gets all objects, too
                request.write(json.dumps({"type": "ADDED", "object": item}) + "\n")
            if "sendInitialEvents" in request.query:
                request.write(json.dumps({"type": "BOOKMARK", "object": {"metadata": {
                    "resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}}}) + "\n")
            request.hold()
