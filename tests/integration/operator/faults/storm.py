# SPDX-License-Identifier: Apache-2.0
"""A server with the API server's certificate that answers every request with an error."""
import http.server
import json
import os
import ssl
import threading

WORDS = {401: ("Unauthorized", "Unauthorized"), 403: ("Forbidden", "pods is forbidden: for a while nobody may"),
         429: ("TooManyRequests", "too many requests, please try again later"),
         500: ("InternalError", "etcdserver: request timed out")}


class Storm:
    """with Storm(cluster, port, 429, ("Retry-After", "1")) as storm: ...; storm.seen is the number of requests."""

    def __init__(self, cluster, port, code, *headers):
        self.seen = 0
        reason, message = WORDS[code]
        body = json.dumps({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
                           "message": message, "reason": reason}).encode()
        storm = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def refuse(self):
                storm.seen += 1
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self.send_response(code)
                # Connection: close, so that no client keeps its connection to this server after the storm.
                for header in (*headers, ("Connection", "close"), ("Content-Type", "application/json"),
                               ("Content-Length", str(len(body)))):
                    self.send_header(*header)
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = refuse

            def log_message(self, *_):
                pass

        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        pki = os.path.join(cluster.dir, "pki")
        tls.load_cert_chain(os.path.join(pki, "apiserver.crt"), os.path.join(pki, "apiserver.key"))
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
