# SPDX-License-Identifier: Apache-2.0
"""The part of ClickHouse's HTTP interface that a Collector and a test need, with ClickHouse's engine behind it. Runs with
the python of `hack/lib/pypi.sh clickhouse`: server.py PORT

POST /?query=STATEMENT: the body is the statement's data, optionally gzipped; without a query the body is the statement."""
import gzip
import http.server
import sys
import urllib.parse

from chdb.session import Session

session = Session()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        statement = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query).get("query", [""])[0]
        try:
            answer, code = session.query(f"{statement} {body.decode()}".strip(), "JSON").bytes(), 200
        except Exception as error:  # noqa: BLE001: the client gets every error
            answer, code = str(error).encode(), 500
        self.send_response(code)
        self.send_header("content-type", "text/plain; charset=UTF-8")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
