# SPDX-License-Identifier: Apache-2.0
"""What agents of two nodes are told, and which peers are rejected."""

import time

import pytest
from conftest import NAMESPACE, program

IDS = {"web": "a" * 64, "db": "b" * 64}


def make_pod(cluster, namespace, name, node, account=None, labels=None):
    pod = program.pod(namespace, name, node, labels)
    if account:
        pod["spec"]["serviceAccountName"] = account
        pod["spec"]["automountServiceAccountToken"] = False
    cluster.apply(pod)
    return pod


def run_container(cluster, namespace, name, container_id):
    cluster.request(f"/api/v1/namespaces/{namespace}/pods/{name}/status", "PATCH", {"status": {
        "phase": "Running", "containerStatuses": [{
            "name": "c", "image": "app:1", "imageID": "", "ready": True, "restartCount": 0,
            "containerID": f"containerd://{container_id}", "state": {"running": {}}}]}},
        {"Content-Type": "application/strategic-merge-patch+json"})


@pytest.fixture(scope="module")
def nodes(cluster):
    """Two nodes, each with an agent's pod and a pod of namespace "shop"."""
    cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "kiln-agent",
                                                                              "namespace": NAMESPACE}})
    for name in ("n1", "n2"):
        cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        make_pod(cluster, NAMESPACE, f"agent-{name}", name, "kiln-agent")
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    make_pod(cluster, "shop", "web", "n1", labels={"app.kubernetes.io/name": "web"})
    make_pod(cluster, "shop", "db", "n2")


def live(agent):
    return agent.snapshots or agent.updates


def test_an_agent_learns_of_its_nodes_pods_and_of_what_changes(cluster, nodes, serve, connect, token):
    operator, port = serve()
    a, b = connect(port, token("agent-n1")), connect(port, token("agent-n2"))
    a.until("snapshot", live)
    b.until("snapshot", live)
    assert (a.node, b.node) == ("n1", "n2")
    assert a.names() == ["agent-n1", "web"] and b.names() == ["agent-n2", "db"]
    started = time.monotonic()
    run_container(cluster, "shop", "web", IDS["web"])
    at = a.until("container id", lambda a: any(c["id"] == IDS["web"] for p in a.pods.values()
                                               for c in p["containers"]))
    print(f"container id, from before the request to the agent: {(at - started) * 1e3:.1f} ms")
    web, = (p for p in a.pods.values() if p["name"] == "web")
    assert web["attributes"]["k8s.namespace.name"] == "shop" and web["attributes"]["k8s.node.name"] == "n1"
    assert web["attributes"]["k8s.pod.uid"] == web["uid"]
    assert web["containers"][0]["attributes"]["k8s.container.name"] == "c"
    updates = b.updates
    make_pod(cluster, "shop", "brief", "n1")
    a.until("new pod", lambda a: "brief" in a.names())
    cluster.kubectl("delete", "pod", "brief", "-n", "shop", "--grace-period=0", "--force")
    a.until("its end", lambda a: "brief" not in a.names())
    assert b.updates == updates and b.names() == ["agent-n2", "db"]
    assert operator.metric("kiln_streams_live") == 2


def test_a_policy_reaches_the_agents_live(cluster, nodes, serve, connect, token):
    _, port = serve()
    a = connect(port, token("agent-n1"))
    a.until("snapshot", live)
    started = time.monotonic()
    cluster.apply(program.thing("ProfilingConfig", "fast", {"profile": {"sampling": {"hz": 97}}}, "shop"))
    at = a.until("97 Hz", lambda a: a.policy_of("web")["hz"] == 97)
    print(f"policy, from before kubectl apply to the agent: {(at - started) * 1e3:.1f} ms")
    assert a.policy_of("agent-n1")["hz"] != 97
    cluster.kubectl("delete", "profilingconfig", "fast", "-n", "shop")
    a.until("the rate of before", lambda a: a.policy_of("web")["hz"] != 97)


def test_a_refused_config_profiles_nobody(cluster, nodes, serve, connect, token):
    """Errors that the API server cannot see: an invalid label key in a selector, and a reference to a removed destination."""
    _, port = serve()
    a = connect(port, token("agent-n1"))
    a.until("snapshot", live)
    a.until("profiled by default", lambda a: a.policy_of("web")["enabled"])
    bad = {"podSelector": {"matchLabels": {"my team": "x"}}}
    for mode in ("Disabled", "Enabled"):
        cluster.apply(program.thing("ProfilingConfig", "bad", {**bad, "profile": {"mode": mode}}, "shop"))
        a.until(f"off: {mode} that cannot be read", lambda a: not a.policy_of("web")["enabled"])
        assert a.policy_of("agent-n1")["enabled"]
        cluster.kubectl("delete", "profilingconfig", "bad", "-n", "shop")
        a.until("on again", lambda a: a.policy_of("web")["enabled"])
    cluster.apply(program.thing("ProfilingConfig", "bad", {"profile": {"sampling": {"hz": 97}}}, "shop"))
    a.until("97 Hz", lambda a: a.policy_of("web")["hz"] == 97)
    cluster.apply(program.thing("ProfilingConfig", "bad", {**bad, "profile": {"sampling": {"hz": 49}}}, "shop"))
    wait = program.wait_until
    wait("a refusal", lambda: (cluster.condition("pcfg", "bad", "Accepted", "shop") or [""])[0] == "False")
    make_pod(cluster, "shop", "later", "n1")
    a.until("what came after", lambda a: "later" in a.names())
    assert a.policy_of("web")["hz"] == a.policy_of("later")["hz"] == 97
    cluster.kubectl("delete", "pod", "later", "-n", "shop", "--grace-period=0", "--force")
    cluster.apply(program.thing("ProfilingConfig", "bad", {
        "profile": {"mode": "Disabled", "destinationRefs": ["removed"]}}, "shop"))
    a.until("off: Disabled with a destination that is gone", lambda a: not a.policy_of("web")["enabled"])
    cluster.kubectl("delete", "profilingconfig", "bad", "-n", "shop")


def test_annotations_that_are_asked_for_later_reach_the_agents(cluster, nodes, serve, connect, token):
    """The annotations are on existing pods and namespaces, which do not change themselves."""
    cluster.kubectl("annotate", "namespace", "shop", "team=fruit")
    cluster.kubectl("annotate", "pod", "web", "-n", "shop", "note=ripe")
    _, port = serve()
    a = connect(port, token("agent-n1"))
    a.until("snapshot", live)

    def attributes(a):
        pod, = (p for p in a.pods.values() if p["name"] == "web")
        return (pod["attributes"].get("k8s.namespace.annotation.team"),
                pod["attributes"].get("k8s.pod.annotation.note"))

    assert attributes(a) == (None, None)
    cluster.patch("cpc", "cluster", {"spec": {"metadata": {"namespaceAnnotations": ["team"],
                                                           "podAnnotations": ["note"]}}})
    a.until("both", lambda a: attributes(a) == ("fruit", "ripe"))
    cluster.patch("cpc", "cluster", {"spec": {"metadata": None}})
    a.until("neither", lambda a: attributes(a) == (None, None))


def test_who_is_refused(cluster, nodes, serve, connect, token, tmp_path):
    operator, port = serve()
    junk = tmp_path / "junk.token"
    junk.write_text("e30.eyJleHAiOjQwMDAwMDAwMDB9.AAAA", encoding="utf-8")
    cases = [("-", "UNAUTHENTICATED", "no_token"),
             (junk, "UNAUTHENTICATED", "rejected"),
             (token("agent-n1", audience=None), "UNAUTHENTICATED", "rejected"),
             (token("agent-n1", audience="another"), "UNAUTHENTICATED", "rejected"),
             (token(account="kiln-operator"), "PERMISSION_DENIED", "other_account"),
             (token(), "PERMISSION_DENIED", "no_node")]
    for what, status, result in cases:
        before = operator.metric("kiln_stream_auth_total", result=result)
        agent = connect(port, what)
        agent.until("refusal", lambda a: a.closed)
        assert agent.closed[0] == status, (what, agent.closed)
        assert not agent.pods and agent.node is None
        assert operator.metric("kiln_stream_auth_total", result=result) == before + 1
        if what != "-":
            assert what.read_text(encoding="utf-8") not in operator.log
    assert operator.metric("kiln_stream_auth_total", result="granted") == 0


def test_a_deleted_pods_token_is_of_no_use(cluster, nodes, serve, connect, token):
    _, port = serve()
    make_pod(cluster, NAMESPACE, "agent-old", "n1", "kiln-agent")
    old = token("agent-old")
    cluster.kubectl("delete", "pod", "agent-old", "-n", NAMESPACE, "--grace-period=0", "--force")
    agent = connect(port, old)
    agent.until("refusal", lambda a: a.closed)
    assert agent.closed[0] == "UNAUTHENTICATED"


def test_whoever_claims_to_be_a_static_pod_is_none(cluster, nodes, serve, connect, token):
    """Any user can write the annotation of a static pod; it counts only once the kubelet reports the pod as running."""
    _, port = serve()
    claims = program.pod("shop", "claims", "n1", annotations={"kubernetes.io/config.mirror": "ab" * 16})
    claims["spec"]["automountServiceAccountToken"] = False
    cluster.request("/api/v1/namespaces/shop/pods", "POST", claims)
    try:
        a = connect(port, token("agent-n1"))
        a.until("a snapshot", live)
        hash_of = lambda: next(p["config_hash"] for p in a.pods.values() if p["name"] == "claims")  # noqa: E731
        assert hash_of() == ""
        run_container(cluster, "shop", "claims", "c" * 64)
        a.until("its hash", lambda _: hash_of() == "ab" * 16)
    finally:
        cluster.kubectl("delete", "pod", "claims", "-n", "shop", "--grace-period=0", "--force")


def test_coming_back_resumes_and_another_operator_sends_everything(cluster, nodes, serve, connect, token):
    operator, port = serve()
    mine = token("agent-n1")
    a = connect(port, mine)
    a.until("snapshot", live)
    a.stop()
    make_pod(cluster, "shop", "later", "n1")
    b = connect(port, mine, a.state)
    b.until("update", live)
    assert b.snapshots == 0 and b.names() == ["later"]
    b.stop()
    assert operator.stop() == 0
    _, port = serve("operator-1")
    c = connect(port, mine, b.state)
    c.until("snapshot", live)
    assert c.snapshots == 1 and c.names() == ["agent-n1", "later", "web"]
    cluster.kubectl("delete", "pod", "later", "-n", "shop", "--grace-period=0", "--force")


def test_ending_tells_agents_to_go_elsewhere(cluster, nodes, serve, connect, token):
    operator, port = serve()
    a = connect(port, token("agent-n1"))
    a.until("snapshot", live)
    assert operator.stop() == 0
    a.until("end", lambda a: a.closed)
    assert a.closed == ("UNAVAILABLE", "the operator ends")
