# SPDX-License-Identifier: Apache-2.0
"""A web server under load, both in one process: each request parses, renders a page from a template, sorts and answers.

usage: web.py SECONDS"""
import http.client
import http.server
import json
import string
import sys
import threading
import time

PAGE = string.Template("<tr><td>$name</td><td>$price</td></tr>")


class Shop:
    def __init__(self):
        self.items = [{"name": f"item {i}", "price": i * 37 % 101} for i in range(60)]

    def cheapest(self, below):
        return sorted((i for i in self.items if i["price"] < below), key=lambda i: (i["price"], i["name"]))

    def page(self, query):
        return "".join(PAGE.substitute(item) for item in self.cheapest(query["below"]))


class Handler(http.server.BaseHTTPRequestHandler):
    shop = Shop()
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = self.shop.page(query).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def main():
    until = time.monotonic() + float(sys.argv[1])
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    client = http.client.HTTPConnection("127.0.0.1", server.server_port)
    n = 0
    while time.monotonic() < until:
        client.request("POST", "/", json.dumps({"below": n % 100}))
        client.getresponse().read()
        n += 1


main()
