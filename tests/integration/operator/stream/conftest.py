# SPDX-License-Identifier: Apache-2.0
"""Fixtures: the operator's program on a real API server, and agents (agent_main.c) with tokens of that server."""

import importlib.util
import json
import os
import pathlib
import queue
import subprocess
import threading
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[4]
# The program's own fixtures: cluster, account, start.
spec = importlib.util.spec_from_file_location("program", ROOT / "tests/integration/operator/program/conftest.py")
program = importlib.util.module_from_spec(spec)
spec.loader.exec_module(program)
cluster, account, start = program.cluster, program.account, program.start  # noqa: F841
NAMESPACE, WAIT = program.NAMESPACE, program.WAIT

AGENT = os.environ.get("KILN_STREAM_AGENT", str(ROOT / "build/dev/bin/stream_agent"))
AUDIENCE = "kiln.dev/node-stream"
CONTROLLER, STREAM = "kiln-operator", "kiln-stream"  # ServiceAccounts
collect_ignore = [] if os.environ.get("KILN_OLD") else ["test_upgrade.py"]


class Agent:
    """An agent, and the state that it was told: pods by uid, policies and destinations by id."""

    def __init__(self, port, ca, token, state=()):
        self.process = subprocess.Popen([AGENT, f"127.0.0.1:{port}", str(ca), str(token), *map(str, state)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pods, self.policies, self.destinations, self.default_policy, self.budget = {}, {}, {}, None, None
        self.node = self.state = self.closed = None
        self.snapshots, self.updates, self.times = 0, 0, []
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put((time.monotonic(), json.loads(line)))

    def _take(self, at, line):
        (what, value), = line.items()
        self.at = at
        if what == "welcome":
            self.node = value
        elif what == "pod":
            self.pods[value["uid"]] = value
        elif what == "destination":
            self.destinations[value["id"]] = value
        elif what == "deleted_destination":
            self.destinations.pop(value)
        elif what == "policy":
            self.policies[value["id"]] = value
        elif what == "default_policy":
            self.default_policy = value
        elif what == "budget":
            self.budget = value
        elif what == "deleted":
            self.pods.pop(value, None)
        elif what in ("snapshot", "update"):
            self.state = (value["epoch"], value["revision"])
            self.snapshots += what == "snapshot"
            self.updates += what == "update"
        elif what == "closed":
            self.closed = (value["status"], value["message"])
        else:
            raise AssertionError(line)

    def until(self, what, condition, timeout=WAIT):
        """Reads messages until CONDITION(self) is true; the time.monotonic() of the last one. Raises ConnectionError when the
        operator has closed the stream before."""
        deadline = time.monotonic() + timeout
        while not condition(self):
            if self.closed and self.lines.empty():
                raise ConnectionError(f"no {what}: {self.closed}")
            try:
                self._take(*self.lines.get(timeout=max(0.01, deadline - time.monotonic())))
            except queue.Empty:
                raise TimeoutError(f"no {what} after {timeout} s: {self.__dict__}") from None
        return getattr(self, "at", 0)

    def names(self):
        return sorted(p["name"] for p in self.pods.values())

    def policy_of(self, name):
        pod, = (p for p in self.pods.values() if p["name"] == name)
        return self.policies[pod["policy"]]

    def stop(self):
        self.process.stdin.close()
        self.process.wait(WAIT)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """The files (CA, certificate, key) of a server on 127.0.0.1."""
    d = tmp_path_factory.mktemp("tls")
    run = lambda *a: subprocess.run(["openssl", *a], cwd=d, check=True, capture_output=True)  # noqa: E731
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    run("req", "-x509", *curve, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=ca")
    run("req", *curve, "-keyout", "key.pem", "-out", "csr.pem", "-subj", "/CN=kiln-operator")
    (d / "ext").write_text("subjectAltName=IP:127.0.0.1\n", encoding="utf-8")
    run("x509", "-req", "-in", "csr.pem", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", "cert.pem",
        "-days", "2", "-extfile", "ext")
    return d / "ca.pem", d / "cert.pem", d / "key.pem"


@pytest.fixture
def serve(start, certificate):
    """serve(): starts an operator and waits until it serves: (operator, port of its node stream)."""
    def serve(name="operator-0", *options):
        port = program.free_port()
        op = start(name, "--stream-address", f"127.0.0.1:{port}", "--stream-cert", str(certificate[1]),
                   "--stream-key", str(certificate[2]), *options)
        program.wait_until("readiness", op.ready)
        program.wait_until("a node stream", lambda: f"serves agents on 127.0.0.1:{port}" in op.log)
        return op, port

    return serve


@pytest.fixture
def connect(certificate):
    """connect(port, token, [epoch, revision]): an Agent. TOKEN: a file, or "-" for none."""
    agents = []

    def connect(port, token, state=()):
        agents.append(Agent(port, certificate[0], token, state))
        return agents[-1]

    yield connect
    for a in agents:
        a.stop()


@pytest.fixture
def token(cluster, tmp_path):
    """token(pod, ...): a file with a token as the kubelet requests it: for Kiln's audience, bound to the pod."""
    def make(pod=None, account="kiln-agent", audience=AUDIENCE):
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        if audience:
            body["spec"]["audiences"] = [audience]
        if pod:
            body["spec"]["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": pod}
        answer = json.loads(cluster.request(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token", "POST", body))
        path = tmp_path / f"{pod}-{account}-{len(list(tmp_path.iterdir()))}.token"
        path.write_text(answer["status"]["token"], encoding="utf-8")
        return path

    return make


# ---- --role=controller and --role=stream -------------------------------------------------------------


def bundle(cluster):
    """The CA bundle that agents trust, from its ConfigMap; None before it exists."""
    return (cluster.object("configmap", "kiln-stream-ca") or {}).get("data", {}).get("ca.crt")


@pytest.fixture(scope="session")
def accounts(cluster, tmp_path_factory):
    """{ServiceAccount: kubeconfig}; the rights are those of kustomize/, and "nobody" has none."""
    cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "nobody", "namespace": NAMESPACE}})
    directory = tmp_path_factory.mktemp("accounts")
    return {name: cluster.account(name, directory) for name in (CONTROLLER, STREAM, "nobody")}


@pytest.fixture
def shipped(cluster):
    """Removes the additional bindings for programs of both roles, so that accounts have only the shipped rights."""
    bindings = [json.loads(cluster.kubectl("get", *what, "-n", NAMESPACE, "-o", "json"))
                for what in program.BOTH_ROLES]
    for b, what in zip(bindings, program.BOTH_ROLES):
        cluster.kubectl("delete", *what, "-n", NAMESPACE)
        b["metadata"] = {key: b["metadata"][key] for key in ("name", "namespace") if key in b["metadata"]}
    yield
    for b in bindings:
        cluster.apply(b)


@pytest.fixture
def control(cluster, accounts, start, tmp_path):
    """control(name, *ports): a controller; PORTS are those of its peers of role stream."""
    def control(name, *ports, kubeconfig=None, env=None):
        token = tmp_path / f"{name}.token"
        token.write_text(cluster.token(NAMESPACE, CONTROLLER, AUDIENCE), encoding="utf-8")
        return start(name, "--role=controller", "--stream-peers=" + ",".join(f"127.0.0.1:{port}" for port in ports),
                     f"--stream-token={token}", kubeconfig=kubeconfig or accounts[CONTROLLER], env=env)

    return control


@pytest.fixture
def roles(cluster, shipped, accounts, start, control, tmp_path):
    """roles(): ([controllers], [(stream, port)], file of the CA), when all are ready and agents can connect."""
    def roles(replicas=2):
        ports = [program.free_port() for _ in range(replicas)]
        controllers = [control(f"controller-{i}", *ports) for i in range(replicas)]
        streams = []
        for i, port in enumerate(ports):
            streams.append((start(f"stream-{i}", "--role=stream", "--stream-address", f"127.0.0.1:{port}",
                                  kubeconfig=accounts[STREAM]), port))
        for op in controllers:
            program.wait_until("a controller", op.ready)
        program.wait_until("a leader", lambda: any(op.leads() for op in controllers))
        for op, port in streams:
            program.wait_until("a node stream", lambda: op.ready() and f"serves agents on 127.0.0.1:{port}" in op.log)
        ca = tmp_path / "ca.crt"
        ca.write_text(program.wait_until("a bundle", lambda: bundle(cluster)), encoding="utf-8")
        return controllers, streams, ca

    return roles


@pytest.fixture
def join(token):
    """join(port, ca, pod): an Agent with a token of POD."""
    agents = []

    def join(port, ca, pod):
        agents.append(Agent(port, ca, token(pod)))
        return agents[-1]

    yield join
    for agent in agents:
        agent.stop()
