# SPDX-License-Identifier: Apache-2.0
"""Destinations with values of Secrets: which nodes get them, and what happens when a Secret changes or is missing."""

import base64
import json
import time

from conftest import NAMESPACE, program
from test_stream import live, nodes  # noqa: F401

FIRST, SECOND, THEIRS = "first-hush-4711", "second-hush-0815", "tenants-hush-42"


def secret(cluster, namespace, name, **values):
    cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace},
                   "data": {k: base64.b64encode(v.encode()).decode() for k, v in values.items()}})


def otlp(name, endpoint, ref):
    return {"name": name, "otlp": {"endpoint": endpoint, "tls": {"mode": "Plaintext"}, "headersFrom": [
        {"name": "x-token", "secretRef": {"name": ref, "key": "token"}}]}}


def header(agent, name):
    return next((d["headers"].get("x-token") for i, d in agent.destinations.items() if i.split("@")[0] == name), None)


def test_values_of_secrets_reach_the_nodes_that_need_them(cluster, nodes, serve, connect, token):  # noqa: F811
    operator, port = serve()
    before = program.wait_until("the first config", lambda: cluster.object("cpc", "cluster"))["spec"]
    secret(cluster, NAMESPACE, "backend", token=FIRST)
    secret(cluster, "shop", "ours", token=THEIRS)
    try:
        cluster.reset({"destinations": [otlp("main", "main.example:4317", "backend"),
                                        otlp("vault", "vault.example:4317", "nowhere"),
                                        {"name": "unused", "otlp": {"endpoint": "unused.example:4317"}}],
                       "defaults": {"destinationRefs": ["main"]},
                       "guardrails": {"tenantDestinations": "SameNamespaceSecret"}})
        a, b = connect(port, token("agent-n1")), connect(port, token("agent-n2"))
        for agent in (a, b):
            agent.until("a snapshot", live)
            agent.until("a header", lambda x: header(x, "main") == FIRST)
            assert set(agent.destinations) == {"main"}
            assert agent.policy_of("agent-n1" if agent is a else "agent-n2")["destinations"] == ["main"]
        # The operator polls Secrets, so a new value arrives without any other change.
        secret(cluster, NAMESPACE, "backend", token=SECOND)
        changed = time.monotonic()
        at = a.until("the new header", lambda x: header(x, "main") == SECOND)
        print(f"another value of a Secret is on the node after {at - changed:.1f} s")
        # A tenant's own destination goes only to the node with a matching pod, and only when the admin has granted the right.
        program_config = program.thing("ProfilingConfig", "own", {
            "podSelector": {"matchLabels": {"app.kubernetes.io/name": "web"}},
            "destinations": [otlp("mine", "mine.example:4317", "ours")],
            "profile": {"destinationRefs": ["mine", "vault"]}}, "shop")
        cluster.apply(program_config)
        a.until("the tenant's policy", lambda x: len(x.policy_of("web")["destinations"]) == 2)
        assert a.policy_of("web")["routed"] and a.policy_of("web")["destinations"][1] == "vault"
        program.wait_until("what is missing", lambda: "vault is left out: there is no Secret" in operator.log and
                           "the operator may not read Secret shop/ours" in operator.log)
        assert set(a.destinations) == {"main"}
        note = program.wait_until("events", lambda: {
            (e["regarding"]["kind"], e["note"]) for e in json.loads(cluster.kubectl(
                "get", "events.events.k8s.io", "-A", "-o", "json"))["items"] if e["reason"] == "SecretMissing"})
        assert ("ClusterProfilingConfig",
                f"Destination vault is left out: there is no Secret {NAMESPACE}/nowhere: make it, with key token, "
                "or refer to another.") in note
        resolved(cluster, "cpc", "cluster", "False", "SecretMissing",
                 f"Destination vault is left out: there is no Secret {NAMESPACE}/nowhere: make it, with key token")
        resolved(cluster, "pcfg", "own", "False", "SecretForbidden", "Destination mine is left out: the operator may "
                 "not read Secret shop/ours: bind ClusterRole kiln-operator-tenant-secrets", "shop")
        assert cluster.condition("cpc", "cluster", "Ready")[0] != "True"
        secret(cluster, NAMESPACE, "nowhere", other="x")
        resolved(cluster, "cpc", "cluster", "False", "SecretKeyMissing", "nowhere has no key token")
        secret(cluster, NAMESPACE, "nowhere", token=SECOND)
        resolved(cluster, "cpc", "cluster", "True", "Resolved", "")
        a.until("the vault", lambda x: header(x, "vault") == SECOND)
        cluster.kubectl("delete", "secret", "nowhere", "-n", NAMESPACE)
        allow(cluster, "shop")
        a.until("the tenant's header", lambda x: header(x, "shop/mine") == THEIRS)
        secret(cluster, "shop", "ours", token=FIRST)
        changed = time.monotonic()
        at = a.until("the tenant's new header", lambda x: header(x, "shop/mine") == FIRST)
        print(f"another value of a tenant's Secret is on the node after {at - changed:.1f} s")
        resolved(cluster, "pcfg", "own", "True", "Resolved", "", "shop")
        # The Secret is deleted: agents keep the value that they have, and the operator logs it.
        cluster.kubectl("delete", "secret", "backend", "-n", NAMESPACE)
        word = f"main is left out: there is no Secret {NAMESPACE}/backend"
        program.wait_until("a word", lambda: word in operator.log)
        assert header(a, "main") == SECOND
        cluster.kubectl("delete", "profilingconfig", "own", "-n", "shop")
        a.until("nothing of the tenant's", lambda x: set(x.destinations) == {"main"})
        b.until("nothing more", lambda x: True)
        assert set(b.destinations) == {"main"}
        seen = operator.log + operator.metrics() + json.dumps(cluster.get("configmaps,cpc,pcfg,events", "-A"))
        assert not [v for v in (FIRST, SECOND, THEIRS) if v in seen]
    finally:
        cluster.reset(before)


def resolved(cluster, kind, name, status, reason, text, namespace=NAMESPACE):
    program.wait_until(f"{reason} of {name}", lambda: (lambda c: c and c[:2] == (status, reason) and text in c[2])(
        cluster.condition(kind, name, "DestinationsResolved", namespace)))


def allow(cluster, namespace):
    """Grants the operator the right to read the namespace's Secrets, as docs/policy.md describes."""
    role = (program.ROOT / "kustomize/components/tenant-secrets/cluster_role.yaml").read_text(encoding="utf-8")
    cluster.apply(role)
    cluster.apply({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                   "metadata": {"name": "kiln-operator-secrets", "namespace": namespace},
                   "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                               "name": "kiln-operator-tenant-secrets"},
                   "subjects": [{"kind": "ServiceAccount", "name": "kiln-operator", "namespace": NAMESPACE}]})
