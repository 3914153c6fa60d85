# SPDX-License-Identifier: Apache-2.0
"""Runs last of the tests of overlay "simple": uninstalling leaves nothing behind, though a namespace has its own config
and the operator has rendered rights for a Secret. KILN_LONG=1 tries every order in which users delete the parts."""
import os
import pathlib
import signal
import time

import pytest

from cluster import AGENTS, NAMESPACE, OPERATORS, ROOT, SCRIPT, host_pids, is_ready, run, wait_for

LONG = os.environ.get("KILN_LONG") == "1"
SIMPLE = ROOT / "kustomize/overlays/simple"


def test_deleting_the_config_ends_profiling(cluster):
    since = time.monotonic()
    cluster.kubectl("delete", "cpc", "cluster")
    wait_for("no agent", lambda: not cluster.get("pods", "-n", NAMESPACE, "-l", AGENTS)["items"])
    cluster.took("config deleted: no agent", since)
    left = cluster.get("daemonset,configmap,service,serviceaccount,networkpolicy,role,rolebinding", "-n", NAMESPACE,
                       "-l", "app.kubernetes.io/managed-by=kiln-operator")["items"]
    assert left == [], [item["metadata"]["name"] for item in left]
    # The operator creates the first config only once: a deleted config does not come back.
    assert cluster.get("cpc")["items"] == []
    assert len([p for p in cluster.pods(OPERATORS) if is_ready(p)]) >= 1
    delete_all(cluster)
    nothing_is_left(cluster)


def install_and_use(cluster):
    """Installs Kiln, configures a Secret and a namespace, and waits for profiles and for the operator's objects."""
    cluster.kubectl("apply", "-k", SIMPLE)
    cluster.kubectl("create", "secret", "generic", "backend", "-n", NAMESPACE, "--from-literal=token=hush")
    wait_for("the first config", lambda: cluster.get("cpc", "cluster"))
    cluster.patch({"spec": {"destinations": [{"name": "logs", "text": {}}, {"name": "main", "otlp": {
        "endpoint": "main.example:4317", "headersFrom": [
            {"name": "x-token", "secretRef": {"name": "backend", "key": "token"}}]}}]}})
    cluster.apply({"apiVersion": "profiling.kiln.dev/v1alpha1", "kind": "ProfilingConfig",
                   "metadata": {"name": "own", "namespace": "shop"}, "spec": {"profile": {"mode": "Enabled"}}})
    wait_for("rights for the Secret", lambda: cluster.get("rolebinding", "-n", NAMESPACE, "kiln-stream-destinations"))
    wait_for("the agent", cluster.agent)
    _, container = cluster.pod_ids("busy")
    wait_for("profiles", lambda: cluster.count(container) > 0, interval=0.5)
    wait_for("what the node reports", lambda: cluster.get("profilingnodes")["items"])
    assert len(left_in_the_cluster(cluster)) > 30 and len(left_running()) == 5


def delete_all(cluster):
    cluster.kubectl("delete", "-k", SIMPLE, "--ignore-not-found")


def all_at_once(cluster):
    """Nothing is deleted before `kubectl delete -k`."""


def after_its_configs(cluster):
    cluster.kubectl("delete", "pcfg", "-A", "--all")
    cluster.kubectl("delete", "cpc", "--all")


def after_the_operator_was_killed(cluster):
    """Deletes both Deployments and kills all replicas with SIGKILL."""
    pids = [pid for p in cluster.pods(OPERATORS) for status in p["status"]["containerStatuses"]
            for pid in host_pids(status["containerID"].split("://")[1])]
    assert len(pids) == 4
    cluster.kubectl("delete", "deployment", "-n", NAMESPACE, "--all", "--wait=false")
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # the process has already ended


def after_the_operators_rights(cluster):
    cluster.kubectl("delete", "clusterrolebinding", "kiln-operator", "kiln-stream")
    cluster.kubectl("delete", "rolebinding", "-n", NAMESPACE, "--all")


def after_the_crds(cluster):
    cluster.kubectl("delete", "-k", ROOT / "crds")


def after_the_namespace(cluster):
    cluster.kubectl("delete", "namespace", NAMESPACE)


def before_the_config_is_there(cluster):
    """The config is deleted and created again, and not awaited."""
    cluster.kubectl("delete", "cpc", "cluster", "--wait=false")
    cluster.kubectl("apply", "-f", SIMPLE / "cluster.yaml")


ORDERS = [after_the_operator_was_killed]
if LONG:
    ORDERS += [all_at_once, after_its_configs, after_the_operators_rights, after_the_crds, after_the_namespace,
               before_the_config_is_there]


@pytest.mark.parametrize("order", ORDERS)
def test_uninstall_leaves_nothing(cluster, order):
    install_and_use(cluster)
    since = time.monotonic()
    order(cluster)
    delete_all(cluster)
    cluster.took(f"delete -k, {order.__name__.replace('_', ' ')}", since)
    nothing_is_left(cluster)


def nothing_is_left(cluster):
    wait_for("nothing", lambda: left_in_the_cluster(cluster) == [], timeout=60)
    wait_for("no process", lambda: left_running() == [], timeout=60)
    # hack/node makes the folder itself; it has to be empty.
    assert run(SCRIPT, "run", cluster.node_dir, "--", "find", "/var/lib/kiln", "-mindepth", "1") == ""


def left_in_the_cluster(cluster):
    """The names of all objects of any kind that have Kiln's label, or "kiln" in their name."""
    kinds = cluster.kubectl("api-resources", "--verbs=list,delete", "-o", "name").split()
    kinds = ",".join(kind for kind in kinds if not kind.startswith("events"))
    ours = cluster.kubectl("get", kinds, "-A", "-l", "app.kubernetes.io/part-of=kiln", "-o", "name").split()
    named = [n for n in cluster.kubectl("get", kinds, "-A", "--ignore-not-found", "-o", "name").split() if "kiln" in n]
    return sorted({n for n in ours + named if not n.endswith("/kiln-node")})  # the Node object is called kiln-node


def left_running():
    """The names of the running kiln-agent and kiln-operator processes in the node's cgroups."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and "kiln-node-" in (entry / "cgroup").read_text():
                found += [c for c in [(entry / "comm").read_text().strip()] if c in ("kiln-agent", "kiln-operator")]
        except OSError:
            pass
    return found
