# SPDX-License-Identifier: Apache-2.0
"""Fixtures: agents (agent_main.c, with the agent's own client) that report to the operator's program on a real API server."""

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
# The fixtures of the node stream's tests: cluster, start, serve, token, certificate.
spec = importlib.util.spec_from_file_location("stream", ROOT / "tests/integration/operator/stream/conftest.py")
stream = importlib.util.module_from_spec(spec)
spec.loader.exec_module(stream)
program = stream.program
cluster, account, start = program.cluster, program.account, program.start
certificate, serve, token = stream.certificate, stream.serve, stream.token
accounts, shipped, control, roles = stream.accounts, stream.shipped, stream.control, stream.roles
NAMESPACE, WAIT, wait_until = program.NAMESPACE, program.WAIT, program.wait_until

AGENT = os.environ.get("KILN_REPORT_AGENT", str(ROOT / "build/dev/bin/report_agent"))
WELL = {"samples": 1000, "exporters": {"main": ""}, "tracers": {"native": "", "python": "not in this version"}}


class Agent:
    """The agent of one node. `state`: the last line that it has printed, decoded."""

    def __init__(self, port, ca, token, config):
        self.process = subprocess.Popen([AGENT, f"127.0.0.1:{port}", str(ca), str(token), str(config)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.state, self.lines = {}, queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self.say()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(json.loads(line))

    def say(self, **changes):
        self.process.stdin.write(json.dumps({**WELL, **changes}) + "\n")
        self.process.stdin.flush()

    def until(self, what, condition, timeout=WAIT):
        deadline = time.monotonic() + timeout
        while not (self.state and condition(self.state)):
            try:
                self.state = self.lines.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                raise TimeoutError(f"no {what} after {timeout} s: {self.state}") from None

    def stop(self):
        if self.process.poll() is None:
            self.process.stdin.close()
        assert self.process.wait(program.WAIT) == 0


@pytest.fixture(scope="module")
def nodes(cluster):
    """Two nodes with an agent's pod and a tenant's pod each."""
    cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "kiln-agent",
                                                                              "namespace": NAMESPACE}})
    cluster.kubectl("create", "namespace", "shop")
    for name, app in (("n1", "web"), ("n2", "db")):
        cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        agent = program.pod(NAMESPACE, f"agent-{name}", name)
        agent["spec"].update(serviceAccountName="kiln-agent", automountServiceAccountToken=False)
        cluster.apply(agent)
        cluster.apply(program.pod("shop", app, name))


@pytest.fixture
def configured(cluster, nodes):
    """configured(operator, spec): sets the cluster's config and waits until it is rolled out to both nodes."""
    def make(operator, spec):
        wait_until("lead", operator.leads)
        wait_until("a first config", lambda: cluster.object("cpc", "cluster"))
        cluster.reset(spec)
        wait_until("acceptance", lambda: (cluster.condition("cpc", "cluster", "Accepted") or [""])[0] == "True")
        wait_until("a DaemonSet", lambda: cluster.object("daemonset", "kiln-agent"))

        def rolled_out():
            cluster.roll_out(nodes=2)
            generation = cluster.object("cpc", "cluster")["metadata"]["generation"]
            status = cluster.object("cpc", "cluster").get("status", {})
            return status.get("observedGeneration") == generation and status["nodes"]["desired"] >= 2

        wait_until("two nodes", rolled_out)

    return make


@pytest.fixture
def connect(cluster, certificate, token, tmp_path):
    """connect(port, node, interval): starts the agent of NODE with the rendered configuration of that reporting interval."""
    agents = []

    def connect(port, node, interval, group="", ca=certificate[0]):
        config = tmp_path / f"{node}{group}.yaml"
        name = f"kiln-agent-{group}" if group else "kiln-agent"

        def rendered():
            text = (cluster.object("configmap", name) or {}).get("data", {}).get("agent.yaml", "")
            return text if f"reporter_interval: {interval}s" in text else None

        config.write_text(wait_until("a ConfigMap", rendered), encoding="utf-8")
        agents.append(Agent(port, ca, token(f"agent-{node}"), config))
        return agents[-1]

    yield connect
    for a in agents:
        a.stop()


def conditions(cluster, kind, name, namespace=NAMESPACE):
    """{type: (status, reason)} of the conditions of an object."""
    thing = cluster.object(kind, name, namespace) or {}
    return {c["type"]: (c["status"], c["reason"]) for c in thing.get("status", {}).get("conditions", [])}
