# SPDX-License-Identifier: Apache-2.0
"""A tenant creates as much as the API server lets it, on a node with other tenants' pods: the others' changes still reach the
agents, and the tenant is told that it is over quota. Prints the latencies. KILN_LONG=1: at full size."""

import itertools
import json
import os
import threading

import pytest
from conftest import program
from test_stream import live, make_pod, nodes, run_container  # noqa: F401

LONG = os.environ.get("KILN_LONG")
CONFIGS, PODS = (1100, 2000) if LONG else (160, 120)
LARGE = "x" * (250 << 10)  # the server allows 256 KiB of annotations
MEMORY_MAX = 1 << 30  # the memory limit of each role in kustomize/base
PATH = "/apis/profiling.kiln.dev/v1alpha1/namespaces/{}/profilingconfigs"


def config(i):
    """A config with excesses, whose kind depends on I."""
    values = [f"v{i}-{j}-{'y' * 40}" for j in range(16)]
    spec = {"podSelector": {"matchLabels": {f"k{j}": f"{i}" for j in range(16)},
                            "matchExpressions": [{"key": f"e{j}", "operator": "NotIn", "values": values}
                                                 for j in range(16)]},
            "priority": 1000, "profile": {"sampling": {"hz": 1 + i % 1000}}}
    meta = {"name": f"c{i}"}
    if i % 16 == 0:
        meta["annotations"] = {"filler": LARGE}
    if i % 40 == 1:
        meta["labels"] = {f"l{j}": f"{j}" for j in range(10000)}
    if i % 3 == 0:
        spec["destinations"] = [{"name": f"d{i}-{j}", "otlp": {"endpoint": f"203.0.113.{j}:{1 + i}", "headers": [
            {"name": f"h{k}", "value": "x" * 1000} for k in range(16)]}} for j in range(4)]
    if i % 5 == 0:
        spec["profile"]["mode"] = "Disabled"
    return {**program.thing("ProfilingConfig", f"c{i}", spec, "evil"), "metadata": {**meta, "namespace": "evil"}}


def pod(i):
    """A pod that config(i) matches. Every second pod has more labels than the operator keeps, and is never profiled."""
    made = program.pod("evil", f"p{i}", "n1", {f"k{j}": f"{i}" for j in range(16)}, {"filler": LARGE})
    made["metadata"]["labels"].update({f"l{j}": f"{j}" for j in range(200 if i % 2 else 1000)})
    return made


class Evil(threading.Thread):
    """A thread that creates all configs and pods, as fast as the server accepts them."""

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self.cluster, self.refused, self.failed = cluster, [], None

    def run(self):
        try:
            for i in range(max(CONFIGS, PODS)):
                if i < CONFIGS:
                    self.make(PATH.format("evil"), config(i))
                if i < PODS:
                    self.make("/api/v1/namespaces/evil/pods", pod(i))
        except Exception as e:  # noqa: BLE001
            self.failed = e

    def make(self, path, body):
        try:
            self.cluster.request(path, "POST", body)
        except program.urllib.error.HTTPError as e:
            self.refused.append(f"{body['metadata']['name']}: {e.code} {e.read()[:200]}")


@pytest.fixture
def evil(cluster):
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "evil"}})
    yield Evil(cluster)
    cluster.request(PATH.format("evil"), "DELETE")
    cluster.request("/api/v1/namespaces/evil/pods?gracePeriodSeconds=0", "DELETE")
    cluster.request(PATH.format("shop"), "DELETE")


def resident(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith("VmHWM"))


def answers(cluster):
    """{config: (status, reason) of Accepted, or None} of the tenant's configs. Sleeps first: the list is megabytes large, and
    frequent lists would add to the load."""
    found = {}
    program.time.sleep(3 if LONG else 0.3)
    for item in json.loads(cluster.request(PATH.format("evil")))["items"]:
        conditions = {c["type"]: c for c in item.get("status", {}).get("conditions", [])}
        accepted = conditions.get("Accepted")
        found[item["metadata"]["name"]] = accepted and (accepted["status"], accepted["reason"])
    return found


def listed(operator):
    return operator.metric("kiln_informer_lists_total", kind="profilingconfigs")


def test_a_tenants_worst_holds_nobody_up(cluster, nodes, serve, connect, token, evil):  # noqa: F811
    # Without a lease: on a slow machine the API server is too busy to renew it in time, and the operator would end.
    operator, port = serve("operator-0", "--leader-elect=false")
    a = connect(port, token("agent-n1"))
    a.until("snapshot", live)
    cluster.apply(program.thing("ProfilingConfig", "fast", {"profile": {"sampling": {"hz": 20}}}, "shop"))
    took, started, lists = [], program.time.monotonic(), listed(operator)
    evil.start()
    for hz in itertools.cycle(range(21, 99)):
        alive = evil.is_alive()
        cluster.request(f"{PATH.format('shop')}/fast", "PATCH", {"spec": {"profile": {"sampling": {"hz": hz}}}},
                        {"Content-Type": "application/merge-patch+json"})
        began = program.time.monotonic()
        took.append(a.until(f"{hz} Hz", lambda a: a.policy_of("web")["hz"] == hz) - began)  # noqa: B023
        program.time.sleep(0.2)
        if not alive:
            break
    assert not evil.failed, evil.failed
    seconds = program.time.monotonic() - started
    took.sort()
    print(f"{CONFIGS} configs, {PODS} pods; {len(evil.refused)} refused by the server: {evil.refused[:2]}; "
          f"{len(took)} changes of another namespace: median {took[len(took) // 2] * 1e3:.0f} ms, slowest "
          f"{took[-1] * 1e3:.0f} ms; the operator had {resident(operator.process.pid) >> 20} MiB at most")
    assert resident(operator.process.pid) <= MEMORY_MAX
    # Full lists, which affect all tenants, must be rare, whatever the tenant does.
    assert listed(operator) - lists <= 2 + seconds / 10
    program.wait_until("the refusal of each of his configs",
                       lambda: set(answers(cluster).values()) == {("False", "NamespaceOverQuota")})
    his = lambda a: [p for p in a.pods.values() if p["namespace"] == "evil"]  # noqa: E731
    a.until("none of his pods is profiled", lambda a: len(his(a)) == PODS and not any(
        a.policies[p["policy"]]["enabled"] for p in his(a) if p["policy"] != "0"))
    for name in answers(cluster):
        cluster.request(f"{PATH.format('evil')}/{name}", "DELETE")
    a.until("as everybody's, with his configs gone", lambda a: len(his(a)) == PODS and all(
        p["policy"] != "0" and a.policies[p["policy"]]["enabled"] for p in his(a) if int(p["name"][1:]) % 2))
    assert all(p["policy"] == "0" for p in his(a) if int(p["name"][1:]) % 2 == 0)
    assert a.policy_of("web")["hz"] == hz and a.closed is None and operator.ready()
