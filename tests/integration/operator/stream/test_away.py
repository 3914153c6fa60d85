# SPDX-License-Identifier: Apache-2.0
"""The API server is away for a while (ten minutes with KILN_LONG=1). The leader ends, since it cannot renew its lease. Stream
replicas go on serving from their caches: agents stay connected, can reconnect, and are told the same as before."""

import os
import time

from conftest import Agent, program
from test_storm import told
from test_stream import live, make_pod, nodes  # noqa: F401

AWAY = 600 if os.environ.get("KILN_LONG") else 20  # seconds


def test_agents_are_served_without_an_api_server(cluster, nodes, roles, token):  # noqa: F811
    controllers, streams, ca = roles()
    leader = next(op for op in controllers if op.leads())
    ports = [port for _, port in streams]
    before = program.wait_until("the first config", lambda: cluster.object("cpc", "cluster"))["spec"]
    make_pod(cluster, "kiln-system", "agent-new", "n2", "kiln-agent")
    mine, others, new = token("agent-n1"), token("agent-n2"), token("agent-new")
    agents = []

    def join(i, who):
        agents.append(Agent(ports[i], ca, who))
        return agents[-1]

    def comes_back(was):
        b = join(1, others)
        b.until("a snapshot", live)
        assert told(b) == was
        b.stop()

    try:
        cluster.apply(program.thing("ProfilingConfig", "fast", {"profile": {"sampling": {"hz": 47}}}, "shop"))
        stays, goes = join(0, mine), join(1, others)
        stays.until("47 Hz", lambda a: live(a) and a.policy_of("web")["hz"] == 47)
        goes.until("47 Hz", lambda a: live(a) and a.policy_of("db")["hz"] == 47)
        knows, knew = told(stays), told(goes)
        goes.stop()
        cluster.kill_apiserver()
        try:
            for i in range(4):
                time.sleep(AWAY / 4)
                assert told(stays) == knows, i
                comes_back(knew)
                assert all(op.ready() for op, _ in streams), i
            # The token of a new agent cannot be reviewed without the API server.
            refused = join(0, new)
            refused.until("a refusal", lambda a: a.closed)
            assert refused.closed[0] == "UNAVAILABLE" and not refused.pods, refused.closed
            program.wait_until("the leader's end", lambda: leader.process.poll() is not None)
            assert leader.process.returncode == 1
        finally:
            cluster.restart_apiserver()
        cluster.apply(program.thing("ProfilingConfig", "fast", {"profile": {"sampling": {"hz": 48}}}, "shop"))
        came = time.monotonic()
        stays.until("48 Hz", lambda a: a.policy_of("web")["hz"] == 48)
        print(f"away for {AWAY} s; a change afterwards reached the agent after {time.monotonic() - came:.1f} s")
        welcome = join(0, new)
        welcome.until("48 Hz", lambda a: live(a) and a.policy_of("db")["hz"] == 48)
    finally:
        for agent in agents:
            if agent.process.poll() is None:
                agent.stop()
        cluster.kubectl("delete", "pcfg", "--all", "-n", "shop")
        cluster.kubectl("delete", "pod", "agent-new", "-n", "kiln-system", "--grace-period=0", "--force")
        cluster.reset(before)
