# SPDX-License-Identifier: Apache-2.0
"""--role=stream and --role=controller, two replicas of each, beside each other: what each does, and what it leaves to
the other."""

import json
import time

import pytest
from conftest import NAMESPACE, program
from test_ca import bundle
from test_stream import live, nodes  # noqa: F401


@pytest.fixture
def roles(cluster, start, tmp_path):
    """roles(): ([controllers], [(stream, port)], file of the CA), all ready, and an agent may come."""
    def roles(replicas=2):
        controllers = [start(f"controller-{i}", "--role=controller") for i in range(replicas)]
        streams = []
        for i in range(replicas):
            port = program.free_port()
            streams.append((start(f"stream-{i}", "--role=stream", "--stream-address", f"127.0.0.1:{port}"), port))
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
    """join(port, ca, pod): an agent."""
    agents = []

    def join(port, ca, pod):
        agents.append(program_agent(port, ca, token(pod)))
        return agents[-1]

    yield join
    for agent in agents:
        agent.stop()


def program_agent(port, ca, path):
    from conftest import Agent
    return Agent(port, ca, path)


def test_streams_serve_what_controllers_write(cluster, nodes, roles, join):  # noqa: F811
    controllers, streams, ca = roles()
    agents = [join(port, ca, f"agent-n{i + 1}") for i, (_, port) in enumerate(streams)]
    for i, agent in enumerate(agents):
        agent.until("a snapshot", live)
        assert agent.node == f"n{i + 1}"
    program.wait_until("a first config", lambda: cluster.object("cpc", "cluster"))
    cluster.reset({"destinations": [{"name": "logs", "text": {}}]})
    program.wait_until("acceptance", lambda: (cluster.condition("cpc", "cluster", "Accepted") or [""])[0] == "True")
    config = program.wait_until("the agents' configuration", lambda: cluster.object("configmap", "kiln-agent"))
    assert f"kiln-operator-stream.{NAMESPACE}.svc:8443" in config["data"]["agent.yaml"]
    cluster.apply(program.thing("ProfilingConfig", "fast", {"profile": {"sampling": {"hz": 97}}}, "shop"))
    agents[0].until("97 Hz", lambda a: a.policy_of("web")["hz"] == 97)
    agents[1].until("97 Hz", lambda a: a.policy_of("db")["hz"] == 97)
    program.wait_until("the status", lambda: (cluster.object("pcfg", "fast", "shop") or {}).get("status", {}).get(
        "matchedPods") == 2)
    for i in (1, 2):
        node = program.wait_until("a ProfilingNode", lambda: cluster.object("pn", f"n{i}"))
        name = program.wait_until("its replica", lambda: cluster.object("pn", f"n{i}").get("status", {}).get("operator"))
        assert name.startswith(f"stream-{i - 1}_"), node
    cluster.kubectl("delete", "pcfg", "fast", "-n", "shop")
    assert sum(op.leads() for op in controllers) == 1
    for op, _ in streams:
        assert "leader_election_master_status" not in op.metrics()
        assert op.metric("kiln_streams_live") == 1
    for op in controllers:
        assert "kiln_streams_live" not in op.metrics() and op.metric("kiln_stream_certificates_total") == 0


def test_a_stream_waits_for_the_ca_and_serves_without_a_controller(cluster, nodes, start, join, tmp_path):  # noqa: F811
    cluster.request(f"/api/v1/namespaces/{NAMESPACE}/secrets/kiln-stream-ca", "DELETE")
    port = program.free_port()
    stream = start("stream-0", "--role=stream", "--stream-address", f"127.0.0.1:{port}")
    program.wait_until("whole caches", lambda: "caches are whole" in stream.log)
    time.sleep(3)
    assert "serves agents" not in stream.log and not cluster.object("secret", "kiln-stream-ca")
    controller = start("controller-0", "--role=controller")
    program.wait_until("a node stream", lambda: f"serves agents on 127.0.0.1:{port}" in stream.log)
    ca = tmp_path / "ca.crt"
    ca.write_text(program.wait_until("a bundle", lambda: bundle(cluster)), encoding="utf-8")
    assert controller.stop() == 0
    agent = join(port, ca, "agent-n1")
    agent.until("a snapshot", live)
    cluster.apply(program.thing("ProfilingConfig", "fast", {"profile": {"sampling": {"hz": 49}}}, "shop"))
    agent.until("49 Hz", lambda a: a.policy_of("web")["hz"] == 49)
    cluster.kubectl("delete", "pcfg", "fast", "-n", "shop")
    assert json.loads(cluster.request("/api/v1/nodes/n1"))["metadata"]["name"] == "n1"
