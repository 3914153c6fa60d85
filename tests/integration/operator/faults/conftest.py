# SPDX-License-Identifier: Apache-2.0
"""Fixtures: one API server, drivers that keep caches of its objects, and a comparison of the caches with a fresh list."""
import http.client
import json
import os
import pathlib
import queue
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "lib")]
import envtest  # noqa: E402
from proxy import Proxy  # noqa: E402

DRIVER = os.environ.get("KILN_OPERATOR_DRIVER", "")
SLOW = 4 if os.environ.get("KILN_SANITIZE") else 1
WITHIN = 5 * SLOW  # seconds from recovery until the caches must be equal
READY = 60 * SLOW  # seconds; the longest wait for an expected event on a busy machine
KINDS = {"pods": "/api/v1/pods", "configmaps": "/api/v1/configmaps", "namespaces": "/api/v1/namespaces"}


class Admin:
    """Requests as the admin over one connection, without the proxy. Raises OSError when there is no answer."""

    def __init__(self, cluster):
        self.cluster, self.http = cluster, None

    def connect(self):
        pki = os.path.join(self.cluster.dir, "pki")
        tls = ssl.create_default_context(cafile=self.cluster.ca)
        tls.load_cert_chain(os.path.join(pki, "admin.crt"), os.path.join(pki, "admin.key"))
        netloc = urllib.parse.urlsplit(self.cluster.url).netloc
        self.http = http.client.HTTPSConnection(netloc, context=tls, timeout=20)

    def __call__(self, method, path, body=None, content="application/json"):
        """Sends a request: (status, decoded body)."""
        used = self.http is not None
        try:
            if not used:
                self.connect()
            self.http.request(method, path, None if body is None else json.dumps(body), {"Content-Type": content})
            answer = self.http.getresponse()
            return answer.status, json.loads(answer.read() or "null")
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.http = None
            if used and isinstance(error, (ConnectionError, ssl.SSLError)):  # the server was restarted since the last request
                return self(method, path, body, content)
            raise OSError(f"{method} {path}: {error!r}") from error

    def must(self, *arguments, **more):
        status, body = self(*arguments, **more)
        assert 200 <= status < 300, f"{arguments[:2]}: {status} {body}"
        return body

    def fresh(self, kinds):
        """The objects of KINDS by a fresh list, as lines in the format of the driver's dump."""
        lines = set()
        for kind in kinds:
            for thing in self.must("GET", KINDS[kind])["items"]:
                meta = thing["metadata"]
                lines.add(f"{kind} {meta.get('namespace', '-')}/{meta['name']} {meta['uid']} "
                          f"{meta['resourceVersion']} {thing.get('spec', {}).get('nodeName', '-')}")
        return lines


class Driver:
    """Runs the program under test, which keeps caches or takes part in an election, and talks to it."""

    def __init__(self, kubeconfig, *arguments, **env):
        self.name = " ".join(arguments)
        self.lines = queue.Queue()
        self.log = open(os.path.join(os.path.dirname(kubeconfig), f"driver-{id(self)}.log"), "w+", encoding="utf-8")
        self.process = subprocess.Popen([DRIVER, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.log, text=True,
                                        env={**os.environ, "KUBECONFIG": kubeconfig, **env})
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line.strip())
        self.lines.put(None)

    def said(self):
        """The end of the driver's log, for error messages."""
        self.log.flush()
        with open(self.log.name, encoding="utf-8") as f:
            return f"{self.name}: {f.read()[-3000:]}"

    def line(self, timeout=READY):
        try:
            line = self.lines.get(timeout=timeout)
        except queue.Empty:
            pytest.fail(f"no word for {timeout} s from {self.said()}")
        assert line is not None, f"ended ({self.process.wait()}): {self.said()}"
        return line

    def ask(self, what):
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        return list(iter(self.line, "end"))

    def dump(self):
        return set(self.ask("dump"))

    def stats(self):
        """{kind: {counter: number}}"""
        return {line.split()[0]: {key: int(value) for key, value in (word.split("=") for word in line.split()[1:])}
                for line in self.ask("stats")}

    def count(self, counter):
        return sum(row[counter] for row in self.stats().values())

    def close(self):
        """Lets the driver end; it must exit with 0 (a leak would change that)."""
        if self.process.poll() is None:
            self.process.stdin.close()
        status = self.process.wait(READY)
        text = self.said()
        self.log.close()
        assert status == 0, f"status {status}: {text}"

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def wait_until(what, check, timeout=READY):
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        result = check()
        if result:
            return result
        time.sleep(0.02)
    pytest.fail(f"waited {timeout} s for: {what}")


def equal(admin, drivers, within=WITHIN):
    """Seconds until the caches of all drivers equal a fresh list; fails after WITHIN seconds."""
    start = time.monotonic()
    for driver in drivers:
        kinds = [word for word in driver.name.split() if word in KINDS]
        while True:
            began = time.monotonic()
            want, have = admin.fresh(kinds), driver.dump()
            if "partial" in driver.name:  # partial objects have no node name
                want = {line.rsplit(" ", 1)[0] for line in want}
                have = {line.rsplit(" ", 1)[0] for line in have}
            if want == have:
                break
            if began - start > within:
                pytest.fail(f"after {within} s {driver.name}: missing {sorted(want - have)[:5]}, "
                            f"too much {sorted(have - want)[:5]}; {driver.stats()}; {driver.said()}")
            time.sleep(0.05)
    return time.monotonic() - start


def pod(name, namespace="default", node="node-1", **labels):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "example.test/image:1"}]}}


def config_map(name, namespace="default", **data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": data}


def redirect(cluster, kubeconfig, port, name):
    """The path of a copy of KUBECONFIG that connects to PORT."""
    with open(kubeconfig, encoding="utf-8") as f:
        text = f.read()
    direct = f"127.0.0.1:{cluster.state['apiserver_port']}"
    assert direct in text
    path = os.path.join(cluster.dir, name)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text.replace(direct, f"127.0.0.1:{port}"))
    return path


@pytest.fixture(scope="module")
def cluster(request):
    assert DRIVER, "KILN_OPERATOR_DRIVER names the program"
    try:
        server = envtest.EnvTest().up()
    except RuntimeError as error:
        pytest.skip(f"{request.module.__name__}: {error}")
    yield server
    server.down()


@pytest.fixture(scope="module")
def admin(cluster):
    return Admin(cluster)


@pytest.fixture
def proxy(cluster):
    p = Proxy(cluster.state["apiserver_port"])
    yield p
    p.close()


@pytest.fixture
def start(cluster, proxy):
    """start(argument, ...): a driver that connects through the proxy; it is closed after the test."""
    drivers = []

    def start_one(*arguments, kubeconfig=None, **env):
        path = redirect(cluster, kubeconfig or cluster.kubeconfig, proxy.port, f"through-{len(drivers)}.kubeconfig")
        drivers.append(Driver(path, *arguments, **env))
        return drivers[-1]

    yield start_one
    for driver in drivers:
        if driver.process.poll() is None:
            driver.close()
        driver.kill()


@pytest.fixture
def caches(admin, start):
    """One synced driver for each way of keeping a cache: streaming lists, paged lists, partial objects."""
    drivers = [start("informers", *KINDS), start("informers", "classic", "page=7", *KINDS),
               start("informers", "partial", "configmaps", "namespaces")]
    equal(admin, drivers, READY)
    return drivers
