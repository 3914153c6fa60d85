# SPDX-License-Identifier: Apache-2.0
"""Agents' reports appear in ProfilingNodes and in the status of configs, as kubectl shows them."""

import json
import re
import time

from conftest import WELL, conditions, program, wait_until

USER = program.USER


def until_condition(cluster, kind, name, want, namespace=program.NAMESPACE):
    """Waits for a condition of an object. WANT: (type, status, reason)."""
    try:
        wait_until(f"{kind} {name} {want}",
                   lambda: conditions(cluster, kind, name, namespace).get(want[0]) == tuple(want[1:]), 30)
    except TimeoutError as e:
        raise TimeoutError(f"{e}: {json.dumps(cluster.object(kind, name, namespace), indent=1)}") from None


def status(cluster, kind, name, namespace=program.NAMESPACE):
    return cluster.object(kind, name, namespace)["status"]


def table(cluster, *what):
    """Prints the table of `kubectl get`, and returns its rows as {column: cell}."""
    text = cluster.kubectl("get", *what)
    print(text)
    head, *rows = text.splitlines()
    starts = [(m.group(), m.start()) for m in re.finditer(r"\S+", head)] + [("", None)]
    return [{name: row[at:end].strip() for (name, at), (_, end) in zip(starts, starts[1:])} for row in rows]


def node_writes(cluster, since):
    return [w for w in cluster.writes(since, user=USER) if w[2].startswith("profilingnodes")]


def test_two_nodes_report_one_degrades_and_leaves(cluster, configured, serve, connect):
    cluster.apply(program.thing("ProfilingConfig", "fast", {"profile": {"sampling": {"hz": 97}}}, "shop"))
    operator, port = serve()
    configured(operator, {"destinations": [{"name": "main", "text": {}}], "agent": {"reportIntervalSeconds": 7}})
    until_condition(cluster, "pcfg", "fast", ("Programmed", "Unknown", "NoReports"), "shop")
    a, b = connect(port, "n1", 7), connect(port, "n2", 7)

    # Both nodes are healthy, and the configs become Ready.
    for name in ("n1", "n2"):
        until_condition(cluster, "pn", name, ("Ready", "True", "Ready"))
    node = cluster.object("pn", "n1")
    assert node["spec"] == {"nodeName": "n1"}
    owner, = node["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Node", cluster.object("node", "n1")["metadata"]["uid"])
    s = node["status"]
    assert s["operator"].startswith("operator-0_") and s["samples"] == WELL["samples"]
    assert s["exporters"] == [{"name": "main", "state": "Healthy"}]
    assert {"name": "python", "state": "Unavailable", "reason": "not in this version"} in s["tracers"]
    # The agent's hash of its configuration file equals the operator's hash of the rendered one.
    assert conditions(cluster, "pn", "n1")["ConfigApplied"] == ("True", "Applied")


    def is_ready():
        cluster.roll_out(nodes=2)  # the DaemonSet that was rendered last
        return conditions(cluster, "cpc", "cluster")["Ready"] == ("True", "Ready")

    wait_until("Ready", is_ready)
    assert status(cluster, "cpc", "cluster")["nodes"] == {"desired": 2, "programmed": 2, "degraded": 0}
    until_condition(cluster, "pcfg", "fast", ("Ready", "True", "Ready"), "shop")
    s = status(cluster, "pcfg", "fast", "shop")
    assert s["nodes"] == {"desired": 2, "programmed": 2, "degraded": 0} and s["matchedPods"] == 2

    # Repeated equal reports cause no writes.
    time.sleep(1.5)
    since = cluster.mark()
    for _ in range(4):
        a.say()
        time.sleep(0.3)
    reports = operator.metric("kiln_stream_reports_total")
    a.say()
    wait_until("one more report", lambda: operator.metric("kiln_stream_reports_total") > reports)
    assert node_writes(cluster, since) == []

    # A tenant's destination fails: only the config that declares it shows that.
    cluster.apply(program.thing("ProfilingConfig", "own", {
        "podSelector": {"matchLabels": {"no": "pod"}},
        "destinations": [{"name": "own", "otlp": {"endpoint": "x:1"}}]}, "shop"))
    b.say(exporters={"main": "", "shop/own@1a2b3c4d": "secret of the node's network"})
    until_condition(cluster, "pcfg", "own", ("Exporting", "False", "ExportFailing"), "shop")
    until_condition(cluster, "pcfg", "own", ("Ready", "False", "ExportFailing"), "shop")
    assert "secret" not in json.dumps(status(cluster, "pcfg", "own", "shop"))
    for kind, name, namespace in (("pn", "n2", program.NAMESPACE), ("cpc", "cluster", program.NAMESPACE),
                                  ("pcfg", "fast", "shop")):
        assert conditions(cluster, kind, name, namespace)["Ready"] == ("True", "Ready")
    b.say(exporters={"main": "", "shop/own@1a2b3c4d": ""})
    until_condition(cluster, "pcfg", "own", ("Exporting", "True", "Exporting"), "shop")
    cluster.kubectl("delete", "pcfg", "own", "-n", "shop")

    # The budget cuts rates: the status lists policy, time and rate, a condition (without effect on Ready) and an event tell.
    assert conditions(cluster, "pn", "n2")["WithinBudget"] == ("True", "NoBudget")
    b.say(budget=5000, cut=[12, 0])
    until_condition(cluster, "pn", "n2", ("WithinBudget", "False", "RatesCut"))
    s = status(cluster, "pn", "n2")["budget"]
    assert (s["cpu"], s["detail"]) == ("0.5%", "All")
    assert [(c["id"], c["hz"], c["hzNow"], c["since"]) for c in s["cut"]] == [
        ("00000000000000a0", 97, 12, "2001-09-09T01:46:40Z"), ("00000000000000a1", 97, 0, "2001-09-09T01:46:40Z")]
    assert conditions(cluster, "pn", "n2")["Ready"] == ("True", "Ready")
    b.say(budget=5000)
    until_condition(cluster, "pn", "n2", ("WithinBudget", "True", "AsAsked"))
    assert "cut" not in status(cluster, "pn", "n2")["budget"]

    def events():
        found = cluster.get("events.events.k8s.io", "-A")["items"]
        return sorted((e["type"], e["reason"]) for e in found if e["regarding"].get("name") == "n2")

    wait_until("two events", lambda: set(events()) >= {
        ("Normal", "ProfilingRatesRestored"), ("Warning", "ProfilingRatesCut")}, 30)

    # A destination fails on one node: the conditions change within seconds.
    b.say(exporters={"main": "unreachable: connection refused"}, dropped=7)
    until_condition(cluster, "pn", "n2", ("Ready", "False", "ExportFailing"))
    until_condition(cluster, "cpc", "cluster", ("Ready", "False", "NodesDegraded"))
    until_condition(cluster, "pcfg", "fast", ("Ready", "False", "NodesDegraded"), "shop")
    assert status(cluster, "cpc", "cluster")["nodes"] == {"desired": 2, "programmed": 2, "degraded": 1}
    rows = table(cluster, "pn")
    assert [(r["NAME"], r["AGENT"], r["CGROUP"], r["READY"], r["REASON"]) for r in rows] == [
        ("n1", "0.1.0", "v2", "True", "Ready"), ("n2", "0.1.0", "v2", "False", "ExportFailing")]
    assert [(r["SAMPLES"], r["DROPPED"]) for r in table(cluster, "pn", "-o", "wide")] == [("1000", "0"), ("1000", "7")]
    row, = table(cluster, "cpc")
    assert (row["PODS"], row["NODES"], row["PROGRAMMED"], row["READY"]) == ("4", "2", "2", "False")
    row, = table(cluster, "pcfg", "-n", "shop")
    assert (row["PODS"], row["PROGRAMMED"], row["READY"]) == ("2", "2", "False")

    # The agent goes away: its last report stays in the status, but Ready becomes Unknown.
    b.stop()
    until_condition(cluster, "pn", "n2", ("Ready", "Unknown", "Disconnected"))
    s = status(cluster, "pn", "n2")
    assert "operator" not in s and s["dropped"] == 7
    wait_until("one programmed node", lambda: status(cluster, "cpc", "cluster")["nodes"] == {
        "desired": 2, "programmed": 1, "degraded": 1})
    table(cluster, "pn")
    assert operator.metric("kiln_node_write_failures_total") == 0
    assert operator.metric("kiln_nodes_connected") == 1


def test_a_node_moves_between_replicas_and_its_labels_reach_its_agent(cluster, configured, roles, connect):
    cluster.kubectl("delete", "pcfg", "--all", "-n", "shop")
    controllers, ((_, first_port), (_, second_port)), ca = roles()
    leader = next(op for op in controllers if op.leads())
    spec = {"destinations": [{"name": "main", "text": {}}], "defaults": {"sampling": {"hz": 19}},
            "agent": {"reportIntervalSeconds": 8},
            "nodeGroups": [{"name": "busy", "nodeSelector": {"matchLabels": {"tier": "busy"}}, "sampling": {"hz": 50},
                            "agent": {"reportIntervalSeconds": 10}}]}
    configured(leader, spec)
    a = connect(first_port, "n1", 8, ca=ca)
    until_condition(cluster, "pn", "n1", ("Ready", "True", "Ready"))
    wait_until("the first's name", lambda: status(cluster, "pn", "n1").get("operator", "").startswith("stream-0_"))
    turned = {c["type"]: c["lastTransitionTime"] for c in status(cluster, "pn", "n1")["conditions"]}
    a.stop()
    b = connect(second_port, "n1", 8, ca=ca)
    wait_until("the second's name", lambda: status(cluster, "pn", "n1").get("operator", "").startswith("stream-1_"))
    assert {c["type"]: c["lastTransitionTime"] for c in status(cluster, "pn", "n1")["conditions"]} == turned

    # The node moves to another group: the rate changes at once, and the agent's configuration is outdated.
    b.until("the cluster's rate", lambda s: s["pods"].get("web") == 19)
    cluster.kubectl("label", "node", "n1", "tier=busy")
    b.until("the group's rate", lambda s: s["pods"].get("web") == 50)
    until_condition(cluster, "pn", "n1", ("Ready", "False", "OldConfig"))
    b.stop()
    connect(second_port, "n1", 10, "busy", ca=ca)
    until_condition(cluster, "pn", "n1", ("Ready", "True", "Ready"))
    cluster.kubectl("label", "node", "n1", "tier-")
