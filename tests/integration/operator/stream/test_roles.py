# SPDX-License-Identifier: Apache-2.0
"""--role=stream and --role=controller with two replicas of each: the tasks of each role, and that each ServiceAccount has
exactly the rights that its role needs."""

import json
import re
import time

import pytest
from conftest import CONTROLLER, NAMESPACE, STREAM, bundle, program
from test_destinations import FIRST, header, otlp, resolved, secret
from test_stream import live, make_pod, nodes  # noqa: F401

USERS = {name: f"system:serviceaccount:{NAMESPACE}:{name}" for name in (CONTROLLER, STREAM)}
READ = "list watch"
WRITE = "list watch create patch delete"
# (verbs, group, resources, namespace, names); namespace "": the whole cluster.
RIGHTS = {
    CONTROLLER: [
        (READ, "", "pods namespaces nodes", "", ""),
        (READ, "profiling.kiln.dev", "clusterprofilingconfigs profilingconfigs profilingnodes", "", ""),
        ("create", "profiling.kiln.dev", "clusterprofilingconfigs", "", ""),
        ("patch", "profiling.kiln.dev",
         "clusterprofilingconfigs/status profilingconfigs/status profilingnodes/status", "", ""),
        ("update", "profiling.kiln.dev", "clusterprofilingconfigs/finalizers", "", ""),
        ("create patch", "profiling.kiln.dev", "profilingnodes", "", ""),
        ("get", "", "nodes", "", ""),
        ("create", "events.k8s.io", "events", "", ""),
        (WRITE, "", "configmaps serviceaccounts services", NAMESPACE, ""),
        (WRITE, "apps", "daemonsets", NAMESPACE, ""),
        (WRITE, "networking.k8s.io", "networkpolicies", NAMESPACE, ""),
        (WRITE, "rbac.authorization.k8s.io", "roles rolebindings", NAMESPACE, ""),
        ("escalate bind", "rbac.authorization.k8s.io", "roles", NAMESPACE, "kiln-stream-destinations"),
        ("get", "", "configmaps", NAMESPACE, "kiln-first-config kiln-stream-ca"),
        ("create", "", "secrets", NAMESPACE, ""),
        ("get update", "", "secrets", NAMESPACE, "kiln-stream-ca"),
        ("create", "coordination.k8s.io", "leases", NAMESPACE, ""),
        ("get update", "coordination.k8s.io", "leases", NAMESPACE, "kiln-operator")],
    STREAM: [
        (READ, "", "pods namespaces nodes", "", ""),
        (READ, "discovery.k8s.io", "endpointslices", "", ""),
        (READ, "profiling.kiln.dev", "clusterprofilingconfigs profilingconfigs", "", ""),
        ("create", "authentication.k8s.io", "tokenreviews", "", ""),
        ("get", "", "secrets", NAMESPACE, "kiln-stream-ca")],
}


def expand(rights):
    return {(verb, group, resource, where, name) for verbs, group, resources, where, names in rights
            for verb in verbs.split() for resource in resources.split() for name in (names.split() or [""])}


def granted(cluster, kubeconfig):
    """The account's rights by SelfSubjectRulesReview, in a foreign namespace and in Kiln's."""
    found = {}
    for where in ("default", NAMESPACE):
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
                  "spec": {"namespace": where}}
        said = json.loads(cluster.kubectl("create", "--validate=false", "-f", "-", "-o", "json",
                                          input=json.dumps(review), kubeconfig=kubeconfig))["status"]
        assert not said["incomplete"]
        found[where] = {(verb, group, resource, name) for rule in said["resourceRules"] for verb in rule["verbs"]
                        for group in rule["apiGroups"] for resource in rule["resources"]
                        for name in rule.get("resourceNames") or [""]}
    everywhere = found["default"]
    return {(v, g, r, "", n) for v, g, r, n in everywhere} | {
        (v, g, r, NAMESPACE, n) for v, g, r, n in found[NAMESPACE] - everywhere}


@pytest.mark.parametrize("name", [CONTROLLER, STREAM])
def test_a_role_has_the_rights_that_it_needs_and_no_others(cluster, shipped, accounts, name):
    """Rights that every ServiceAccount has, such as reviewing its own rights, are left out."""
    assert granted(cluster, accounts[name]) - granted(cluster, accounts["nobody"]) == expand(RIGHTS[name])


def test_who_has_the_streams_token_writes_nothing_but_tokenreviews():
    assert {r[:3] for r in expand(RIGHTS[STREAM]) if r[0] not in ("get", "list", "watch")} == {
        ("create", "authentication.k8s.io", "tokenreviews")}
    for name, verbs in ((STREAM, {"get"}), (CONTROLLER, {"get", "update"})):
        assert {r for r in expand(RIGHTS[name]) if r[2] == "secrets" and r[0] != "create"} == {
            (verb, "", "secrets", NAMESPACE, "kiln-stream-ca") for verb in verbs}


def rule_of_secrets(names):
    return {("get", "", "secrets", NAMESPACE, name) for name in names}


def test_the_stream_reads_the_secrets_that_destinations_name_and_no_others(cluster, shipped, accounts, start,
                                                                         tmp_path):
    """The stream's rights follow the Secrets that destinations name: before, with and after such a destination."""
    own = expand(RIGHTS[STREAM])
    controller = start("controller-0", "--role=controller", "--stream-peers=127.0.0.1:1",
                       f"--stream-token={tmp_path}/none", kubeconfig=accounts[CONTROLLER])
    program.wait_until("lead", controller.leads)
    before = program.wait_until("the first config", lambda: cluster.object("cpc", "cluster"))["spec"]

    def may():
        return granted(cluster, accounts[STREAM]) - granted(cluster, accounts["nobody"])

    def can_i(what):
        return cluster.kubectl("auth", "can-i", *what.split(), "-n", NAMESPACE, kubeconfig=accounts[STREAM],
                               check=False).stdout.strip()

    try:
        cluster.reset({"destinations": [{"name": "main", "otlp": {
            "endpoint": "main.example:4317", "tls": {"caSecretRef": {"name": "trust", "key": "ca.crt"},
                                                     "clientCertificateSecretRef": {"name": "me"}},
            "headersFrom": [{"name": "x-token", "secretRef": {"name": "backend", "key": "token"}}]}}]})
        program.wait_until("its rights", lambda: may() == own | rule_of_secrets(["backend", "me", "trust"]))
        assert [can_i(f"get secret/{name}") for name in ("backend", "other", "kiln-stream-ca")] == ["yes", "no", "yes"]
        assert can_i("list secrets") == can_i("get secrets") == can_i("patch daemonsets.apps") == "no"
        owner, = cluster.object("role", "kiln-stream-destinations")["metadata"]["ownerReferences"]
        assert owner["kind"] == "ClusterProfilingConfig"
        # Additional rights are taken back.
        cluster.patch("role", "kiln-stream-destinations", {"rules": [
            {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]}]})
        program.wait_until("its rights again", lambda: may() == own | rule_of_secrets(["backend", "me", "trust"]))
        cluster.reset({"destinations": [otlp("main", "main.example:4317", "backend")]})
        program.wait_until("fewer", lambda: may() == own | rule_of_secrets(["backend"]))
        cluster.reset({"destinations": [{"name": "logs", "text": {}}]})
        program.wait_until("none", lambda: may() == own)
        program.wait_until("no role", lambda: not cluster.object("role", "kiln-stream-destinations") and
                           not cluster.object("rolebinding", "kiln-stream-destinations"))
        assert "orbidden" not in controller.log
    finally:
        cluster.reset(before)


def test_docs_name_each_right_and_the_file_that_needs_it():
    page = (program.ROOT / "docs/operator.md").read_text(encoding="utf-8")
    found = {CONTROLLER: set(), STREAM: set()}
    for role, verbs, what, where, files in re.findall(
            r"^\| (controller|stream) \| ([a-z, ]+) \| ([^|]+) \| (\*|kiln-system) \| (.*) \|$", page, re.M):
        for path in re.findall(r"`(operator/[^`]+)`", files):
            assert (program.ROOT / path).is_file(), path
        first, *names = what.split(", ")
        resources, names = ([first.split()[0]], [first.split()[1], *names]) if " " in first else ([first, *names], [""])
        found[{"controller": CONTROLLER, "stream": STREAM}[role]] |= {
            (verb, resource, where.strip("*"), name) for verb in verbs.split(", ") for resource in resources
            for name in names}
    for account, rights in RIGHTS.items():
        assert found[account] == {(v, r, where, n) for v, _, r, where, n in expand(rights)}, account


def written(cluster, since):
    """{ServiceAccount: the resources that it has written or tried to write}."""
    everything = cluster.writes(since)
    return {name: {w[2] for w in everything if w[0] == user} for name, user in USERS.items()}


def test_streams_serve_what_controllers_write(cluster, nodes, roles, join):  # noqa: F811
    cluster.kubectl("delete", "profilingnodes", "--all")  # of earlier tests: these agents' are to be made
    since = cluster.mark()
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
    for op in (*controllers, *(op for op, _ in streams)):
        assert "orbidden" not in op.log, op.log
    wrote = written(cluster, since)
    assert wrote[STREAM] == set()
    assert {"configmaps", "daemonsets", "profilingconfigs/status", "profilingnodes", "profilingnodes/status"} <= wrote[CONTROLLER]
    assert [w for w in cluster.writes(since) if w[0] in USERS.values() and w[4] in (401, 403)] == []
    # One agent disconnects; the replica of the other is killed.
    agents[0].stop()
    away = lambda i: "operator" not in cluster.object("pn", f"n{i}")["status"]  # noqa: E731
    program.wait_until("the first is away", lambda: away(1))
    streams[1][0].stop(9)
    program.wait_until("the second is away", lambda: away(2))
    assert cluster.object("pn", "n2")["status"]["conditions"][0]["reason"] == "Disconnected"


def test_a_controller_tells_of_secrets_that_it_may_not_read(cluster, nodes, roles, join):  # noqa: F811
    controllers, streams, ca = roles(1)
    before = program.wait_until("the first config", lambda: cluster.object("cpc", "cluster"))["spec"]
    try:
        cluster.reset({"destinations": [otlp("vault", "vault.example:4317", "not-there-yet")],
                       "defaults": {"destinationRefs": ["vault"]}})
        agent = join(streams[0][1], ca, "agent-n1")
        agent.until("a snapshot", live)
        resolved(cluster, "cpc", "cluster", "False", "SecretMissing",
                 f"Destination vault is left out: there is no Secret {NAMESPACE}/not-there-yet")
        secret(cluster, NAMESPACE, "not-there-yet", token=FIRST)
        agent.until("the header", lambda a: header(a, "vault") == FIRST)
        resolved(cluster, "cpc", "cluster", "True", "Resolved", "")
        assert FIRST not in controllers[0].log + streams[0][0].log
        read = [e for e in cluster.audit() if e["verb"] == "get" and
                e.get("objectRef", {}).get("name") == "not-there-yet"]
        assert {e["user"]["username"] for e in read} == {USERS[STREAM]}
        assert {e["responseStatus"]["code"] for e in read} <= {200, 403, 404}  # 403 before the right was granted
        # A node lists at most four destinations of a namespace, besides the cluster's, so that none hides another's.
        names = [f"d{i}" for i in range(6)]
        cluster.kubectl("delete", "secret", "not-there-yet", "-n", NAMESPACE)
        cluster.reset({"destinations": [otlp("other", "vault.example:4317", "not-there-yet")],
                       "defaults": {"destinationRefs": ["other"]},
                       "guardrails": {"tenantDestinations": "SameNamespaceSecret"}})
        make_pod(cluster, "shop", "more", "n1")
        for config, some, selector in (("own", names[:3], {}), ("webs", names[3:], {"podSelector": {
                "matchLabels": {"app.kubernetes.io/name": "web"}}})):
            cluster.apply(program.thing("ProfilingConfig", config, {
                "destinations": [otlp(name, f"{name}.example:4317", "ours") for name in some],
                "profile": {"destinationRefs": some}, **selector}, "shop"))
        left = program.wait_until("both causes", lambda: (lambda got: len(got) == 5 and got)(
            [(d["name"], d["reason"]) for d in cluster.object("pn", "n1")["status"].get("leftOut", [])]))
        assert ("other", "SecretMissing") in left
        assert {reason for name, reason in left if name.startswith("shop/d")} == {"SecretForbidden"}
        for config in ("own", "webs"):
            resolved(cluster, "pcfg", config, "False", "SecretForbidden", "may not read Secret shop/ours", "shop")
    finally:
        cluster.kubectl("delete", "pcfg", "own", "webs", "-n", "shop", "--ignore-not-found")
        cluster.kubectl("delete", "pod", "more", "-n", "shop", "--grace-period=0", "--force", "--ignore-not-found")
        cluster.kubectl("delete", "secret", "not-there-yet", "-n", NAMESPACE, "--ignore-not-found")
        cluster.reset(before)


def test_a_stream_waits_for_the_ca_and_serves_without_a_controller(
        cluster, nodes, shipped, accounts, control, start, join, tmp_path):  # noqa: F811
    cluster.request(f"/api/v1/namespaces/{NAMESPACE}/secrets/kiln-stream-ca", "DELETE")
    port = program.free_port()
    stream = start("stream-0", "--role=stream", "--stream-address", f"127.0.0.1:{port}",
                   kubeconfig=accounts[STREAM])
    program.wait_until("whole caches", lambda: "caches are whole" in stream.log)
    time.sleep(3)
    assert "serves agents" not in stream.log and not cluster.object("secret", "kiln-stream-ca")
    assert not stream.ready() and "no certificate yet" in stream._get(stream.health, "/readyz")[1]
    controller = control("controller-0", port)
    program.wait_until("a node stream", lambda: f"serves agents on 127.0.0.1:{port}" in stream.log)
    assert stream.ready()
    ca = tmp_path / "ca.crt"
    ca.write_text(program.wait_until("a bundle", lambda: bundle(cluster)), encoding="utf-8")
    assert controller.stop() == 0
    agent = join(port, ca, "agent-n1")
    agent.until("a snapshot", live)
    cluster.apply(program.thing("ProfilingConfig", "fast", {"profile": {"sampling": {"hz": 49}}}, "shop"))
    agent.until("49 Hz", lambda a: a.policy_of("web")["hz"] == 49)
    cluster.kubectl("delete", "pcfg", "fast", "-n", "shop")
