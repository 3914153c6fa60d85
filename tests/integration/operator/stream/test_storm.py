# SPDX-License-Identifier: Apache-2.0
"""The API server answers all requests of a stream replica with 401, 403 and 500 for a while: agents keep their state, and are
told of the changes afterwards. KILN_LONG=1: for half a minute."""

import copy
import os
import pathlib
import sys
import time

from conftest import NAMESPACE, STREAM, bundle, program
from test_destinations import header, otlp, secret
from test_stream import live, nodes  # noqa: F401

sys.path.insert(0, str(program.ROOT / "tests/integration/operator/faults"))
from proxy import Proxy  # noqa: E402
from storm import Storm  # noqa: E402

SECONDS = 10 if os.environ.get("KILN_LONG") else 3  # for each status code


def through(cluster, kubeconfig, port, path):
    """The path of a copy of KUBECONFIG that connects to PORT."""
    text = pathlib.Path(kubeconfig).read_text(encoding="utf-8")
    direct = f"127.0.0.1:{cluster.state['apiserver_port']}"
    assert direct in text
    path.write_text(text.replace(direct, f"127.0.0.1:{port}"), encoding="utf-8")
    return str(path)


def told(agent):
    """A copy of the agent's current (pods, policies, destinations)."""
    while not agent.lines.empty():
        agent._take(*agent.lines.get())
    assert agent.closed is None, agent.closed
    return copy.deepcopy((agent.pods, agent.policies, agent.destinations))


def test_refusals_change_nothing_on_the_nodes(cluster, nodes, shipped, accounts, start, control, join,  # noqa: F811
                                              tmp_path):
    proxy, port = Proxy(cluster.state["apiserver_port"]), program.free_port()
    stream = start("stream-0", "--role=stream", "--stream-address", f"127.0.0.1:{port}",
                   kubeconfig=through(cluster, accounts[STREAM], proxy.port, tmp_path / "through.kubeconfig"))
    controller = control("controller-0", port)
    for op in (stream, controller):
        program.wait_until("readiness", op.ready)
    before = program.wait_until("the first config", lambda: cluster.object("cpc", "cluster"))["spec"]
    ca = tmp_path / "ca.crt"
    ca.write_text(program.wait_until("a bundle", lambda: bundle(cluster)), encoding="utf-8")
    secret(cluster, NAMESPACE, "backend", token="hush")
    hz = 31

    def set_hz():
        cluster.apply(program.thing("ProfilingConfig", "fast", {"profile": {"sampling": {"hz": hz}}}, "shop"))

    try:
        cluster.reset({"destinations": [otlp("main", "main.example:4317", "backend")]})
        set_hz()
        agent = join(port, ca, "agent-n1")
        agent.until("a snapshot", live)
        agent.until("a header", lambda a: header(a, "main") == "hush")
        for code in (401, 403, 500):
            agent.until(f"{hz} Hz", lambda a: a.policy_of("web")["hz"] == hz)  # noqa: B023
            was = told(agent)
            proxy.refuse()
            with Storm(cluster, proxy.port, code) as storm:
                hz += 1
                set_hz()
                time.sleep(SECONDS)
            assert storm.seen > SECONDS / 2, (code, storm.seen)
            assert told(agent) == was, code
            proxy.allow()
        agent.until(f"{hz} Hz", lambda a: a.policy_of("web")["hz"] == hz)
        assert header(agent, "main") == "hush" and stream.process.poll() is None
    finally:
        proxy.close()
        cluster.kubectl("delete", "pcfg", "--all", "-n", "shop")
        cluster.reset(before)
