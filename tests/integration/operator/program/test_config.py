# SPDX-License-Identifier: Apache-2.0
"""An admin's changes with kubectl, and their effects."""

import json
import time

from conftest import NAMESPACE, ROOT, USER, pod, settle, wait_until

RENDERED = [("configmap", "kiln-agent"), ("serviceaccount", "kiln-agent"), ("service", "kiln-agent-metrics"),
            ("networkpolicy", "kiln-agent"), ("daemonset", "kiln-agent")]


def test_applying_twice_changes_nothing_the_second_time(cluster):
    assert "created" in cluster.first_apply and "unchanged" not in cluster.first_apply
    where = str(ROOT / "kustomize/overlays/default")

    def versions():
        return {(t["kind"], t["metadata"]["name"]): t["metadata"]["resourceVersion"]
                for t in json.loads(cluster.kubectl("get", "-k", where, "-o", "json"))["items"]}

    before = versions()
    second = cluster.kubectl("apply", "-k", where).strip().splitlines()
    # kubectl's patch of a PodDisruptionBudget always replaces the selector, with an equal one.
    changed = [line for line in second if not line.endswith(" unchanged")]
    assert len(second) == len(before) > 10 and all(line.startswith("poddisruptionbudget") for line in changed), second
    assert versions() == before


def test_a_new_installation_profiles(cluster, operator):
    for kind, name in RENDERED:
        assert cluster.object(kind, name), f"no {kind} {name}"
    owner = cluster.object("daemonset", "kiln-agent")["metadata"]["ownerReferences"]
    assert [(o["kind"], o["name"]) for o in owner] == [("ClusterProfilingConfig", "cluster")]
    text = cluster.kubectl("get", "cpc")
    print(text)
    assert text.split("\n")[1].split()[0] == "cluster" and "True" in text
    assert "Applied" in cluster.kubectl("describe", "cpc", "cluster")


def test_the_shipped_roles_suffice(cluster, operator):
    cluster.settled()
    refused = [e["requestURI"] for e in cluster.audit() if e["user"].get("username") == USER
               and e.get("responseStatus", {}).get("code") == 403]
    assert refused == []


def test_the_agents_account_can_do_nothing(cluster, operator):
    agent = f"--as=system:serviceaccount:{NAMESPACE}:kiln-agent"
    mine = cluster.kubectl("auth", "can-i", "--list", agent, "-n", NAMESPACE)
    nobody = cluster.kubectl("auth", "can-i", "--list", f"--as=system:serviceaccount:{NAMESPACE}:none", "-n", NAMESPACE)
    assert mine == nobody
    for verb, what in (("get", "pods"), ("list", "nodes"), ("get", "secrets"), ("get", "configmaps")):
        assert cluster.kubectl("auth", "can-i", verb, what, agent, check=False).stdout.strip() == "no"


def test_a_tracer_that_is_switched_off_shows_at_once(cluster, operator):
    before = cluster.object("cpc", "cluster")["status"]["configHash"]
    started = time.monotonic()
    cluster.patch("cpc", "cluster", {"spec": {"defaults": {"tracers": {"python": "Disabled"}}}})

    def followed():
        thing = cluster.object("cpc", "cluster")
        return (thing["status"].get("configHash") != before
                and thing["status"]["observedGeneration"] == thing["metadata"]["generation"])

    wait_until("new hash in the status", followed)
    print(f"patched, rendered and in the status, seen through kubectl: {time.monotonic() - started:.2f} s")
    agent = cluster.object("configmap", "kiln-agent")
    assert "python" not in agent["data"]["agent.yaml"]
    key = "profiling.kiln.dev/config-hash"
    template = cluster.object("daemonset", "kiln-agent")["spec"]["template"]["metadata"]["annotations"]
    assert template[key] == agent["metadata"]["annotations"][key]
    cluster.patch("cpc", "cluster", {"spec": {"defaults": {"tracers": {"python": None}}}})
    wait_until("the hash of before", lambda: cluster.object("cpc", "cluster")["status"]["configHash"] == before)


def test_a_namespace_beyond_the_rails_is_clamped_and_told(cluster, operator):
    cluster.patch("cpc", "cluster", {"spec": {"guardrails": {"sampling": {"maxHz": 97}}}})
    cluster.kubectl("create", "namespace", "team-a")
    cluster.apply({"apiVersion": "profiling.kiln.dev/v1alpha1", "kind": "ProfilingConfig",
                   "metadata": {"name": "fast", "namespace": "team-a"}, "spec": {"profile": {"sampling": {"hz": 499}}}})
    wait_until("an Overridden condition", lambda: (cluster.condition("pcfg", "fast", "Overridden", "team-a") or [""])[0]
               == "True")
    status = cluster.object("pcfg", "fast", "team-a")["status"]
    assert [(c["field"], c["requested"], c["effective"]) for c in status["clamped"]] == [
        ("sampling.hz", "499", "97")], status
    assert cluster.condition("pcfg", "fast", "Accepted", "team-a")[0] == "True"
    cluster.patch("pcfg", "fast", {"spec": {"profile": {"sampling": {"hz": 49}}}}, namespace="team-a")
    wait_until("no clamp", lambda: (cluster.condition("pcfg", "fast", "Overridden", "team-a") or [""])[0] == "False")
    assert "clamped" not in cluster.object("pcfg", "fast", "team-a")["status"]


def test_matched_pods_follow_the_pods(cluster, operator):
    cluster.kubectl("create", "namespace", "team-b")
    cluster.apply([pod("team-b", f"p{i}", f"node-{i % 2}", {"app": "api" if i < 3 else "web"}) for i in range(5)])
    cluster.apply({"apiVersion": "profiling.kiln.dev/v1alpha1", "kind": "ProfilingConfig",
                   "metadata": {"name": "api", "namespace": "team-b"},
                   "spec": {"podSelector": {"matchLabels": {"app": "api"}}, "profile": {"sampling": {"hz": 49}}}})

    def matched(pods, nodes):
        status = (cluster.object("pcfg", "api", "team-b") or {}).get("status", {})
        return (status.get("matchedPods"), status.get("nodes", {}).get("desired")) == (pods, nodes)

    wait_until("3 pods on 2 nodes", lambda: matched(3, 2))
    cluster.patch("pod", "p0", {"metadata": {"annotations": {"profiling.kiln.dev/mode": "disabled"}}},
                  namespace="team-b")
    wait_until("2 pods on 2 nodes", lambda: matched(2, 2))
    cluster.kubectl("delete", "pod", "p1", "-n", "team-b", "--force", "--grace-period=0")
    wait_until("1 pod on 1 node", lambda: matched(1, 1))
    cluster.kubectl("label", "pod", "p3", "-n", "team-b", "--overwrite", "app=api")
    wait_until("2 pods on 2 nodes", lambda: matched(2, 2))


def test_a_config_that_cannot_be_is_not_accepted_and_harms_nothing(cluster, operator):
    before, since = cluster.object("cpc", "cluster")["status"]["configHash"], cluster.mark()
    # The schema does not check keys of maps, but the API server would reject this label on a pod.
    cluster.patch("cpc", "cluster", {"spec": {"agent": {"podLabels": {"my team": "x"}}}})
    refusal = wait_until("a refusal", lambda: (c := cluster.condition("cpc", "cluster", "Accepted"))
                         and c[0] == "False" and c)
    print(refusal)
    assert refusal[1] == "Invalid" and refusal[2].startswith("spec.agent.podLabels")
    assert cluster.condition("cpc", "cluster", "Ready")[0] == "False"
    time.sleep(1)
    assert [w for w in cluster.writes(since, user=USER) if "/status" not in w[2] and w[2] != "events"] == []
    cluster.reset({"destinations": [{"name": "logs", "text": {}}]})
    settle(cluster)
    assert cluster.object("cpc", "cluster")["status"]["configHash"] == before


def test_node_groups_come_and_go(cluster, operator):
    cluster.patch("cpc", "cluster", {"spec": {"nodeGroups": [
        {"name": "gpu", "nodeSelector": {"matchLabels": {"pool": "gpu"}}, "sampling": {"hz": 97}, "agent": {}},
        {"name": "small", "nodeSelector": {"matchLabels": {"pool": "small"}}, "agent": {"logLevel": "Debug"}}]}})
    names = {"kiln-agent", "kiln-agent-gpu", "kiln-agent-small"}
    wait_until("three DaemonSets", lambda: {d["metadata"]["name"] for d in cluster.get(
        "daemonsets", "-n", NAMESPACE)["items"]} == names)
    assert "samples_per_second: 97" in cluster.object("configmap", "kiln-agent-gpu")["data"]["agent.yaml"]
    settle(cluster)
    assert cluster.object("cpc", "cluster")["status"]["nodes"] == {"desired": 9, "programmed": 9, "degraded": 0}
    cluster.patch("cpc", "cluster", {"spec": {"nodeGroups": None}})
    wait_until("one DaemonSet", lambda: len(cluster.get("daemonsets", "-n", NAMESPACE)["items"]) == 1)
    wait_until("one ConfigMap of ours", lambda: [c["metadata"]["name"] for c in cluster.get(
        "configmaps", "-n", NAMESPACE, "-l", "app.kubernetes.io/managed-by=kiln-operator")["items"]] == ["kiln-agent"])


def test_a_roll_out_shows_in_the_status(cluster, operator):
    cluster.roll_out(nodes=4, ready=1)
    wait_until("1 of 4", lambda: (c := cluster.condition("cpc", "cluster", "Programmed")) and c[1] == "RollingOut")
    assert cluster.object("cpc", "cluster")["status"]["nodes"] == {"desired": 4, "programmed": 1, "degraded": 3}
    cluster.roll_out(nodes=4)
    wait_until("4 of 4", lambda: (c := cluster.condition("cpc", "cluster", "Ready")) and c[0] == "True")


def test_without_a_config_nothing_runs(cluster, operator):
    cluster.kubectl("delete", "cpc", "cluster")
    wait_until("an empty namespace", lambda: cluster.get("daemonsets,configmaps,services,networkpolicies", "-n",
                                                         NAMESPACE, "-l",
                                                         "app.kubernetes.io/managed-by=kiln-operator")["items"] == [])
    time.sleep(2)
    # The operator creates the first config only once: a deleted config does not come back.
    assert not cluster.object("cpc", "cluster")
    cluster.apply({"apiVersion": "profiling.kiln.dev/v1alpha1", "kind": "ClusterProfilingConfig",
                   "metadata": {"name": "cluster"}, "spec": {"destinations": [{"name": "logs", "text": {}}]}})
    settle(cluster)


def test_explain_reads_well(cluster):
    text = cluster.kubectl("explain", "cpc.spec.guardrails.sampling.maxHz")
    assert "<integer>" in text and len(text.split("DESCRIPTION:")[1].strip()) > 30
    assert json.loads(cluster.kubectl("get", "crd", "profilingconfigs.profiling.kiln.dev", "-o", "json"))
