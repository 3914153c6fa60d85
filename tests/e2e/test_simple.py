# SPDX-License-Identifier: Apache-2.0
"""`kubectl apply -k kustomize/overlays/simple` on a real node, as a user sees it: from nothing to profiles in
`kubectl logs`, through changes and faults, to nothing."""
import datetime
import json
import os
import re
import signal
import time

import pytest

from cluster import AGENTS, NAMESPACE, OPERATORS, cpu, host_pids, is_ready, wait_for

CHAIN = ["busy_leaf", "busy_inner", "busy_outer", "main"]


def condition(config, kind):
    return next(c["status"] for c in config["status"]["conditions"] if c["type"] == kind)


def is_in_effect(config):
    status = config["status"]
    return (status["observedGeneration"] == config["metadata"]["generation"] and condition(config, "Ready") == "True"
            and status["nodes"] == {"desired": 1, "programmed": 1, "degraded": 0})


def is_complete(sample):
    """Whether the stack is complete: from _start and main through CHAIN to busy_leaf, or to the caller that was on its way."""
    names = sample.user
    at = names.index("main") if "main" in names else -1
    return at >= 0 and names[:at + 1] == CHAIN[3 - at:] and names[-1] == "_start"


def wait_for_config(cluster):
    return wait_for("the config is in effect",
                    lambda: (c := cluster.get("cpc", "cluster")) and is_in_effect(c) and c)


def wait_for_samples(cluster, container, n, what):
    return wait_for(f"{n} samples {what}", lambda: cluster.count(container) >= n and cluster.samples(container),
                    interval=0.5)


def test_two_operators_run_and_one_leads(cluster):
    wait_for("two operators", lambda: len([p for p in cluster.pods(OPERATORS) if is_ready(p)]) == 4)
    cluster.took("operator: two replicas of both roles Ready, since apply", cluster.applied)
    lease = wait_for("a leader", lambda: cluster.get("lease", "-n", NAMESPACE, "kiln-operator"))
    names = [p["metadata"]["name"] for p in cluster.pods(OPERATORS)]
    assert any(lease["spec"]["holderIdentity"].startswith(name + "_") for name in names)


def test_agent_becomes_ready(cluster):
    agent = wait_for("the agent", cluster.agent)
    cluster.took("agent: Ready, since apply", cluster.applied)
    assert agent["status"]["containerStatuses"][0]["restartCount"] == 0
    assert agent["spec"]["hostPID"] is True


def test_samples_of_a_pod_are_its_own(cluster):
    uid, container = cluster.pod_ids("busy")
    wait_for_samples(cluster, container, 1, "of the busy pod")
    cluster.took("first profile of the busy pod, since apply", cluster.applied)
    samples = wait_for_samples(cluster, container, 200, "of the busy pod")
    for s in samples:
        assert s.resource["k8s.pod.uid"] == uid
        assert s.resource["k8s.node.name"] == "kiln-node"
        assert s.pid in host_pids(container)
        assert (s.exe, s.attributes["process.executable.path"]) == ("kiln-busy", "/usr/local/bin/kiln-busy")
    total = sum(s.value for s in samples)
    complete = sum(s.value for s in samples if is_complete(s))
    # The first samples of a process may be taken before its unwind tables are loaded.
    assert complete >= 0.99 * total - 3, [s.frames for s in samples if not is_complete(s)]


def test_log_reads_like_the_seeds(cluster):
    """The dump has the lines, the keys and the order of the dump of OpenTelemetry's distribution."""
    _, container = cluster.pod_ids("busy")
    text = cluster.log()
    block = text[text.rfind("--------------- New Resource Profile", 0, text.find(container)):]
    block = block[:block.find("- End Sample -")]
    want = [r"-{15} New Resource Profile -{14}", rf"  container\.id: {container} \(Str\)", r"(?:  \S+: .* \((?:Str|Slice|Int)\)\n)+"
            r"-{19} New Profile -{19}", r"  ProfileID: 0{32}", r"  Dropped attributes count: 0", r"  SampleType: samples",
            r"-{19} New Sample -{20}", r"  thread\.name: kiln-busy \(Str\)",
            r"  process\.executable\.name: kiln-busy \(Str\)",
            r"  process\.executable\.path: /usr/local/bin/kiln-busy \(Str\)", r"  process\.pid: \d+ \(Int\)",
            r"  thread\.id: \d+ \(Int\)", r"  Values: \[\d+\]", r"-{51}",
            r"(?:Instrumentation: (?:native|kernel), Function: .+\n)+-+"]
    assert re.fullmatch("\n".join(want), block), block


def test_a_pod_that_lives_two_seconds(cluster):
    cluster.busy_pod("short", "2")
    wait_for("its end", lambda: cluster.get("pod", "-n", "shop", "short")["status"]["phase"] == "Succeeded")
    uid, container = cluster.pod_ids("short")
    samples = wait_for_samples(cluster, container, 5, "of the short pod")
    assert {s.resource["k8s.pod.uid"] for s in samples} == {uid}
    total = sum(s.value for s in samples)
    assert sum(s.value for s in samples if is_complete(s)) >= 0.9 * total - 3, [s.frames for s in samples]


def test_status_says_so(cluster):
    config = wait_for_config(cluster)
    assert condition(config, "Accepted") == "True" and condition(config, "Programmed") == "True"
    header, row = (re.split(r"\s{2,}", line) for line in cluster.kubectl("get", "cpc").splitlines())
    columns = dict(zip(header, row))
    assert (header[0], columns["HZ"], columns["NODES"]) == ("NAME", "20", "1")
    assert row[-4:-1] == ["1", "True", "True"]  # Programmed, Accepted, Ready


def test_killed_agent_comes_back(cluster):
    before = wait_for("the agent", cluster.agent)
    old = before["status"]["containerStatuses"][0]["containerID"].split("://")[1]
    _, container = cluster.pod_ids("busy")
    (pid,) = host_pids(old)
    since, killed = time.monotonic(), time.time()
    os.kill(pid, signal.SIGKILL)
    wait_for("another container", lambda: cluster.pods(AGENTS)[0]["status"]["containerStatuses"][0]["restartCount"] == 1
             and cluster.pods(AGENTS)[0]["status"]["containerStatuses"][0]["state"].get("running"))
    assert cluster.pods(AGENTS)[0]["metadata"]["uid"] == before["metadata"]["uid"]
    began = wait_for("sampling", lambda: re.search(r"^(\S+) info agent: profiling at", cluster.log(), re.M))
    cluster.times.append(("agent killed with -9: samples again",
                          datetime.datetime.fromisoformat(began[1]).timestamp() - killed))
    wait_for_samples(cluster, container, 20, "after the agent was killed")
    cluster.took("agent killed with -9: profiles in the log again", since)
    wait_for("the agent", cluster.agent)


@pytest.fixture(scope="module")
def web(cluster):
    """A Deployment with one busy pod. Gives (the pod object, the container id)."""
    cluster.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"}, "spec": {
        "replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web", "app.kubernetes.io/name": "web"}},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [{
                "name": "server", "image": "kiln.local/busy:1", "imagePullPolicy": "Never",
                "resources": {"requests": {"cpu": "200m"}, "limits": {"cpu": "500m"}}}]}}}})
    pod = wait_for("the Deployment's pod", lambda: [
        p for p in cluster.get("pods", "-n", "shop", "-l", "app=web")["items"] if is_ready(p)][0])
    yield pod, pod["status"]["containerStatuses"][0]["containerID"].split("://")[1]
    cluster.kubectl("delete", "deployment", "-n", "shop", "web", "--wait=false")


def test_samples_say_whose_they_are(cluster, web):
    """Samples have their pod's attributes, from the operator's stream: the agent itself may not ask the API server."""
    pod, container = web
    since = time.monotonic()
    resource = wait_for_samples(cluster, container, 20, "of the Deployment")[-1].resource
    cluster.took("a Deployment's pod Ready: its profile in the log", since)
    owner, = pod["metadata"]["ownerReferences"]
    want = {"k8s.namespace.name": "shop", "k8s.pod.name": pod["metadata"]["name"], "k8s.pod.uid": pod["metadata"]["uid"],
            "k8s.container.name": "server", "k8s.deployment.name": "web", "k8s.replicaset.name": owner["name"],
            "k8s.node.name": "kiln-node", "container.id": container, "container.image.name": "kiln.local/busy",
            "service.name": "web", "service.namespace": "shop", "service.version": "1"}
    assert {key: resource.get(key) for key in want} == want
    # Even the first sample has the pod's name: samples of an unknown container are held until the container is known.
    assert {s.resource.get("k8s.pod.name") for s in cluster.samples(container)} == {pod["metadata"]["name"]}
    _, busy = cluster.pod_ids("busy")
    resource = cluster.samples(busy)[-1].resource
    assert (resource["k8s.pod.name"], resource["k8s.container.name"]) == ("busy", "busy")
    assert "k8s.deployment.name" not in resource


def same_agent(cluster, before):
    """Whether the agent still runs in the same pod and the same container as in BEFORE."""
    after = wait_for("the agent", cluster.agent)
    def who(pod): return pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["containerID"]
    return who(after) == who(before)


def wait_for_rate(cluster, container, hz):
    """Waits until the container has HZ (within 15 %) samples for each second of CPU time, counted between two window ends
    in the log. The delay between a window's end and its lines in the log varies, so at least 8 s of CPU time are counted."""
    def window_end():
        before = cluster.count(container)
        return wait_for("a window's end", lambda: (n := cluster.count(container)) != before and (n, cpu(container)),
                        interval=0.05)

    def is_hz():
        end, used_then = window_end()
        return used_then - used > 8 and 0.85 * hz < (end - count) / (used_then - used) < 1.15 * hz

    window_end()  # skip the end of the window that began before the call
    count, used = window_end()
    wait_for(f"{hz} samples for each second of processor time", is_hz)


def test_the_clusters_rate_changes_live(cluster):
    _, container = cluster.pod_ids("busy")
    before = wait_for("the agent", cluster.agent)
    since = time.monotonic()
    cluster.patch({"spec": {"defaults": {"sampling": {"hz": 97}}}})
    wait_for_config(cluster)
    cluster.took("rate changed: in effect", since)
    wait_for_rate(cluster, container, 97)
    cluster.patch({"spec": {"defaults": {"sampling": {"hz": 20}}}})
    assert same_agent(cluster, before)


def are_silent(cluster, containers):
    """Whether the log gets no sample of CONTAINERS while containers[0] uses 3 s of CPU time and the log grows four times."""
    counts, used, written = [cluster.count(c) for c in containers], cpu(containers[0]), set()
    wait_for("four windows", lambda: written.add(len(cluster.log())) or (len(written) > 4 and cpu(containers[0]) > used + 3),
             interval=0.5)
    return [cluster.count(c) for c in containers] == counts


def test_a_namespaces_policy_holds_at_once(cluster, web):
    """A Disabled namespace has no samples, one with its own rate has that rate. Neither change restarts the agent."""
    _, container = cluster.pod_ids("busy")
    cluster.patch({"spec": {"agent": {"reportIntervalSeconds": 1}}})
    wait_for("the agent that reports each second",
             lambda: "window 1 s" in cluster.log() and cluster.agent() and wait_for_config(cluster))
    wait_for_samples(cluster, container, 50, "before the policy")
    before = cluster.agent()
    config = {"apiVersion": "profiling.kiln.dev/v1alpha1", "kind": "ProfilingConfig",
              "metadata": {"name": "off", "namespace": "shop"}, "spec": {"profile": {"mode": "Disabled"}}}
    cluster.apply(config)
    since = time.monotonic()
    wait_for("no samples of a namespace that is Disabled", lambda: are_silent(cluster, [container, web[1]]))
    cluster.took("namespace Disabled: no samples, and so for 3 s", since)
    assert are_silent(cluster, [container, web[1]]), "samples of a namespace that is Disabled"
    count = cluster.count(container)
    config["spec"] = {"profile": {"mode": "Enabled", "sampling": {"hz": 97}}}
    cluster.apply(config)
    since = time.monotonic()
    wait_for("samples again", lambda: cluster.count(container) > count, interval=0.1)
    cluster.took("namespace Enabled: first profile", since)
    wait_for_rate(cluster, container, 97)
    assert same_agent(cluster, before)
    cluster.kubectl("delete", "profilingconfig", "-n", "shop", "off")


def test_the_agent_knows_its_pods_without_the_operator(cluster):
    """An agent that is killed while no operator runs still names samples: from the operator's last snapshot on disk."""
    _, container = cluster.pod_ids("busy")
    cluster.scale(0)
    wait_for("no operator", lambda: not cluster.get("pods", "-n", NAMESPACE, "-l", OPERATORS)["items"])
    before = wait_for("the agent", cluster.agent)["status"]["containerStatuses"][0]
    (pid,) = host_pids(before["containerID"].split("://")[1])
    os.kill(pid, signal.SIGKILL)
    wait_for("another container", lambda: cluster.pods(AGENTS)[0]["status"]["containerStatuses"][0]["restartCount"]
             == before["restartCount"] + 1 and cluster.agent())
    samples = wait_for_samples(cluster, container, 20, "without the operator")
    assert {s.resource.get("k8s.pod.name") for s in samples} == {"busy"}
    cluster.scale(2)
    wait_for("two operators", lambda: len([p for p in cluster.pods(OPERATORS) if is_ready(p)]) == 4)


def test_nothing_secret_is_told(cluster):
    """No ConfigMap, object or log contains the CA's private key or a token."""
    secret = cluster.get("secret", "-n", NAMESPACE, "kiln-stream-ca")["data"]
    said = json.dumps(cluster.get("configmaps,ds,cpc", "-n", NAMESPACE)) + cluster.log()
    said += cluster.kubectl("logs", "-n", NAMESPACE, "-l", OPERATORS, "--tail=-1")
    assert "PRIVATE KEY" not in said and "eyJ" not in said and secret["ca.key"] not in said
    assert "BEGIN CERTIFICATE" in said


def test_a_change_of_the_agent_rolls_out(cluster):
    _, container = cluster.pod_ids("busy")
    before = wait_for("the agent", cluster.agent)["metadata"]["uid"]
    since = time.monotonic()
    cluster.patch({"spec": {"agent": {"securityMode": "Privileged", "reportIntervalSeconds": 5}}})
    wait_for("another agent", lambda: (a := cluster.agent()) and a["metadata"]["uid"] != before)
    wait_for_config(cluster)
    cluster.took("securityMode changed: in effect", since)
    # The snapshot on the node's disk outlives the pod: the new agent names samples from its first window on.
    samples = wait_for_samples(cluster, container, 100, "of the privileged agent")
    assert {s.resource.get("k8s.pod.name") for s in samples} == {"busy"}
    assert sum(s.value for s in samples if is_complete(s)) >= 0.98 * sum(s.value for s in samples) - 3


def test_no_operator_restarted_on_the_way(cluster):
    for pod in cluster.pods(OPERATORS):
        assert pod["status"]["containerStatuses"][0]["restartCount"] == 0


def test_a_killed_leader_is_replaced(cluster):
    """When the killed leader's lease has expired, another replica acquires it and applies changes."""
    def holder():
        return cluster.get("lease", "-n", NAMESPACE, "kiln-operator")["spec"]["holderIdentity"]
    before = holder()
    leader = next(p for p in cluster.pods(OPERATORS) if before.startswith(p["metadata"]["name"] + "_"))
    since = time.monotonic()
    (pid,) = host_pids(leader["status"]["containerStatuses"][0]["containerID"].split("://")[1])
    os.kill(pid, signal.SIGKILL)
    wait_for("another leader", lambda: holder() not in ("", before))
    cluster.took("leader killed with -9: another leads", since)
    cluster.patch({"spec": {"defaults": {"sampling": {"hz": 20}}}})
    wait_for_config(cluster)
