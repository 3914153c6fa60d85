# SPDX-License-Identifier: Apache-2.0
"""Fixtures of this folder's tests: a real Collector, the sender, a throw-away PKI, a counting proxy."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests/integration"), str(ROOT / "tests/integration/lib")]
import components  # noqa: E402
import otlp_decode  # noqa: E402
from ports import free_port  # noqa: E402

SEND = os.environ.get("KILN_COLLECTOR_SEND", str(ROOT / "build/dev/tests/collector_send"))
LONG = os.environ.get("KILN_LONG") == "1"
WAIT = 120  # seconds; the longest wait for an expected event


def wait_until(what, check):
    end = time.monotonic() + WAIT
    while time.monotonic() < end:
        if check():
            return
        time.sleep(0.05)
    pytest.fail(f"waited {WAIT} s for: {what}")


class Collector:
    """A real Collector. Its ports stay the same across restarts; each run writes its own output file."""

    def __init__(self, directory, binary, tls=None):
        self.directory, self.binary, self.tls = directory, binary, tls
        self.grpc, self.http, self.body_max = free_port(), free_port(), 0
        self.outputs, self.process = [], None

    def start(self):
        output = self.directory / f"out-{len(self.outputs)}.json"
        self.outputs.append(output)
        tls = json.dumps({"tls": self.tls})[1:-1] + "," if self.tls else ""
        config = self.directory / "collector.yaml"
        config.write_text(f"""
receivers:
  otlp:
    protocols:
      grpc: {{{tls} "endpoint": "127.0.0.1:{self.grpc}"}}
      http: {{{tls} "endpoint": "127.0.0.1:{self.http}", "max_request_body_size": {self.body_max}}}
exporters:
  file: {{path: {output}}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    profiles: {{receivers: [otlp], exporters: [file]}}
""")
        log = open(self.directory / "collector.log", "ab")
        self.process = subprocess.Popen(
            [self.binary, "--feature-gates=service.profilesSupport", f"--config={config}"],
            stdout=log, stderr=log)
        log.close()
        wait_until("the Collector listens", self._listens)
        return self

    def _listens(self):
        assert self.process.poll() is None, (self.directory / "collector.log").read_text()[-2000:]
        for port in (self.grpc, self.http):
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", port)):
                    return False
        return True

    def stop(self):
        if self.process:
            self.process.send_signal(signal.SIGTERM)
            assert self.process.wait(WAIT) == 0
            self.process = None

    def samples(self):
        """Stops the Collector; {thread name: value} of all samples received. Fails if a thread name arrived twice."""
        self.stop()  # the Collector writes the rest of its output when it stops
        seen = {}
        for output in self.outputs:
            for sample in otlp_decode.decode(str(output)) if output.stat().st_size else []:
                name = sample["attributes"]["thread.name"]
                assert name not in seen, f"{name} came twice"
                seen[name] = sample["value"]
        return seen


def expected(batches, samples, prefix="id"):
    return {f"{prefix}-{b}-{i}": i % 3 + 1 for b in range(batches) for i in range(samples)}


class Sender:
    """Runs collector_send. `lines`: its statistics so far; `log`: its log lines so far."""

    def __init__(self, *args):
        self.lines = []
        self.process = subprocess.Popen([SEND, *map(str, args)], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        self.log = []
        self._readers = [threading.Thread(target=self._read), threading.Thread(target=self._read_log)]
        for reader in self._readers:
            reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(json.loads(line))

    def _read_log(self):
        for line in self.process.stderr:
            self.log.append(line.rstrip())

    def end(self, code=0, timeout=WAIT):
        try:
            assert self.process.wait(timeout) == code, self.log
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        for reader in self._readers:
            reader.join()
        return self.lines[-1] if self.lines else None


@pytest.fixture(scope="session")
def collector_binary():
    return components.collector()


@pytest.fixture
def collector(tmp_path, collector_binary):
    c = Collector(tmp_path, collector_binary)
    yield c
    if c.process:
        c.process.kill()
        c.process.wait()


@pytest.fixture
def send():
    senders = []

    def start(*args):
        senders.append(Sender(*args))
        return senders[-1]

    yield start
    for s in senders:
        if s.process.poll() is None:
            s.process.kill()
            s.process.wait()


@pytest.fixture(scope="session")
def pki(tmp_path_factory):
    """A folder with NAME.crt, NAME.key: ca, other-ca (signs nothing), server (127.0.0.1), named (collector.test), client."""
    d = tmp_path_factory.mktemp("pki")

    def run(*args):
        subprocess.run(["openssl", *args], cwd=d, check=True, capture_output=True)

    for ca in ("ca", "other-ca"):
        run("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-keyout", f"{ca}.key", "-out", f"{ca}.crt", "-days", "2", "-subj", f"/CN=kiln {ca}")
    for name, san in (("server", "IP:127.0.0.1,DNS:localhost"), ("named", "DNS:collector.test"),
                      ("client", "DNS:agent.test")):
        run("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
            f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (d / "ext").write_text(f"subjectAltName={san}\n")
        run("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key",
            "-CAcreateserial", "-out", f"{name}.crt", "-days", "2", "-extfile", "ext")
    return d


class Proxy:
    """A TCP proxy on loopback to port TARGET. `up`: the number of bytes that clients have sent."""

    def __init__(self, target):
        self.target, self.up = target, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.target))
            for a, b, count in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._pump, args=(a, b, count), daemon=True).start()

    def _pump(self, a, b, count):
        try:
            while data := a.recv(65536):
                if count:
                    self.up += len(data)
                b.sendall(data)
            b.shutdown(socket.SHUT_WR)
        except OSError:
            pass


@pytest.fixture
def proxy():
    proxies = []

    def start(target):
        proxies.append(Proxy(target))
        return proxies[-1]

    yield start
    for p in proxies:
        p.listener.close()
