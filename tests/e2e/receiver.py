#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A receiver of profiles: accepts every OTLP/HTTP request on ADDRESS:PORT..., and prints for each request the time
(CLOCK_MONOTONIC), the port and the value of the header x-token.

    receiver.py SECONDS ADDRESS PORT...
"""
import http.server
import os
import sys
import threading
import time


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        line = f"{time.monotonic()} {self.server.server_port} {self.headers.get('x-token', '-')}\n"
        os.write(1, line.encode())  # one write call: lines of several threads do not mix
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


for port in sys.argv[3:]:
    server = http.server.ThreadingHTTPServer((sys.argv[2], int(port)), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
time.sleep(float(sys.argv[1]))
