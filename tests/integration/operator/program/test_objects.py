# SPDX-License-Identifier: Apache-2.0
"""The operator keeps its rendered objects as it has rendered them, without needless writes."""

import time

from conftest import NAMESPACE, USER, wait_until
from test_config import RENDERED

EDITS = {
    "configmap": {"data": {"agent.yaml": "receivers: {}"}},
    "serviceaccount": {"automountServiceAccountToken": True},
    "service": {"spec": {"selector": {"app.kubernetes.io/name": "other"}}},
    "networkpolicy": {"spec": {"policyTypes": ["Ingress", "Egress"]}},
    "daemonset": {"spec": {"template": {"spec": {"hostPID": False}}}},
}


def writes_of(cluster, since, kind):
    return [w for w in cluster.writes(since, user=USER) if w[2].startswith(kind)]


def plural(kind):
    return "networkpolicies" if kind == "networkpolicy" else kind + "s"


def spec_of(thing):
    """The parts of an object that the operator sets, without those that the server or a controller adds."""
    meta = thing["metadata"]
    return {**{k: v for k, v in thing.items() if k not in ("metadata", "status")}, "labels": meta.get("labels"),
            "owners": [o["uid"] for o in meta.get("ownerReferences", [])],
            "hash": meta["annotations"]["profiling.kiln.dev/applied-hash"]}


def test_what_is_deleted_comes_back_by_one_write(cluster, operator):
    for kind, name in RENDERED:
        before, since, started = cluster.object(kind, name), cluster.mark(), time.monotonic()
        cluster.kubectl("delete", kind, name, "-n", NAMESPACE, "--wait=false")
        wait_until(f"{kind} again", lambda: (t := cluster.object(kind, name))
                   and t["metadata"]["uid"] != before["metadata"]["uid"])
        took = time.monotonic() - started
        time.sleep(1)
        writes = writes_of(cluster, since, plural(kind))
        print(f"{kind}: deleted, restored after {took:.2f} s by {len(writes)} write")
        after = cluster.object(kind, name)
        if kind != "service":  # the server may assign another clusterIP to a new Service
            assert spec_of(after)["hash"] == spec_of(before)["hash"]
        assert len(writes) == 1, writes


def test_what_is_edited_is_put_right_by_one_write(cluster, operator):
    for kind, name in RENDERED:
        before, since, started = spec_of(cluster.object(kind, name)), cluster.mark(), time.monotonic()
        cluster.patch(kind, name, EDITS[kind])
        if kind == "daemonset":
            before.pop("spec"), before.pop("hash")
        wait_until(f"{kind} as before", lambda: before.items() <= spec_of(cluster.object(kind, name)).items())
        wait_until(f"a write of {kind}", lambda: writes_of(cluster, since, plural(kind)))
        took = time.monotonic() - started
        time.sleep(1)
        writes = writes_of(cluster, since, plural(kind))
        print(f"{kind}: edited, restored after {took:.2f} s by {len(writes)} write")
        assert len(writes) == 1, writes
    assert cluster.object("daemonset", "kiln-agent")["spec"]["template"]["spec"]["hostPID"] is True


def test_a_label_that_is_taken_away_comes_back(cluster, operator):
    cluster.kubectl("label", "service", "kiln-agent-metrics", "-n", NAMESPACE, "app.kubernetes.io/managed-by-")
    wait_until("the label", lambda: cluster.object("service", "kiln-agent-metrics")["metadata"]["labels"].get(
        "app.kubernetes.io/managed-by") == "kiln-operator")


def test_what_others_add_is_left_alone(cluster, operator):
    since = cluster.mark()
    cluster.kubectl("annotate", "daemonset", "kiln-agent", "-n", NAMESPACE, "example.com/seen=yes")
    cluster.kubectl("label", "configmap", "kiln-agent", "-n", NAMESPACE, "example.com/seen=yes")
    time.sleep(2)
    assert cluster.writes(since, user=USER) == []
    assert cluster.object("daemonset", "kiln-agent")["metadata"]["annotations"]["example.com/seen"] == "yes"


def reconciles(operator):
    return operator.metric("controller_runtime_reconcile_total")


def test_a_thousand_reconciles_of_an_unchanged_world_write_nothing(cluster, operator):
    time.sleep(2)
    since, before, i = cluster.mark(), reconciles(operator), 0
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/kiln-agent"
    while reconciles(operator) - before < 1000:
        i += 1
        assert i < 5000
        # A foreign annotation: the event causes a reconcile that finds nothing to do.
        cluster.request(path, "PATCH", {"metadata": {"annotations": {"example.com/tick": str(i)}}},
                        {"Content-Type": "application/merge-patch+json"})
    writes = cluster.writes(since, user=USER)
    print(f"{reconciles(operator) - before:.0f} reconciles, {len(writes)} writes")
    assert writes == []
