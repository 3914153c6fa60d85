# SPDX-License-Identifier: Apache-2.0
"""Samples of each kind of workload have exactly the resource attributes that the semantic conventions give that kind
(k8s.*, container.*, service.*). They are read from `kubectl logs` of the agent and compared with the API server's objects."""
import json

import pytest

from cluster import wait_for

NAMESPACE = "market"
BUSY = {"name": "busy", "image": "kiln.local/busy:1", "imagePullPolicy": "Never",
        "resources": {"requests": {"cpu": "200m"}}}


def template(name, *seconds, **spec):
    return {"metadata": {"labels": {"app": name}},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [{**BUSY, "args": list(seconds)}], **spec}}


def job(name, seconds):
    return {"backoffLimit": 0, "template": template(name, seconds, restartPolicy="Never")}


def selecting(name, **more):
    return {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template(name), **more}


WORKLOADS = [
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
    {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": selecting("web")},
    {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "front"},
     "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}},
    {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
     "spec": selecting("db", serviceName="db")},
    {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once"}, "spec": job("once", "5")},
    {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "tick"},
     "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": job("tick", "2")}}},
    {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "prepared"},
     "spec": {**template("prepared")["spec"], "initContainers": [{**BUSY, "name": "prepare", "args": ["3"]}]}},
    {"apiVersion": "v1", "kind": "Pod",
     "metadata": {"name": "told", "annotations": {"resource.opentelemetry.io/service.name": "till",
                                                  "resource.opentelemetry.io/service.version": "7",
                                                  "resource.opentelemetry.io/team": "checkout",
                                                  "resource.opentelemetry.io/k8s.pod.name": "a lie"}},
     "spec": template("told")["spec"]},
    {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "brief"},
     "spec": template("brief", "2", restartPolicy="Never")["spec"]},
]


@pytest.fixture(scope="module")
def market(cluster):
    """Creates WORKLOADS once the agent is Ready; deletes them afterwards."""
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [
        {**w, "metadata": {**w["metadata"], "namespace": NAMESPACE}} if w["kind"] != "Namespace" else w
        for w in WORKLOADS]})
    wait_for("the agent", cluster.agent)
    cluster.kubectl("apply", "-f", "-", input=text)
    yield cluster
    cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def pod_of(cluster, prefix):
    """The oldest pod whose name begins with PREFIX and whose container has been started, or None."""
    pods = [p for p in cluster.get("pods", "-n", NAMESPACE)["items"] if p["metadata"]["name"].startswith(prefix)]
    pods.sort(key=lambda p: p["metadata"]["creationTimestamp"])
    return next((p for p in pods if p["status"].get("containerStatuses", [{}])[0].get("containerID")), None)


def common(cluster, pod, status):
    """The attributes that a container of any pod on this node must have."""
    meta = pod["metadata"]
    return {
        "k8s.namespace.name": NAMESPACE, "k8s.pod.name": meta["name"], "k8s.pod.uid": meta["uid"],
        "k8s.pod.start_time": meta["creationTimestamp"], "k8s.node.name": "kiln-node", "k8s.container.name": status["name"],
        "k8s.cluster.uid": cluster.get("namespace", "kube-system")["metadata"]["uid"],
        "container.id": status["containerID"].split("://")[1],
        "container.image.name": "kiln.local/busy", "container.image.tags": '["1"]',
        "container.image.repo_digests": f'["{status["imageID"]}"]',
        "service.namespace": NAMESPACE, "service.version": "1",
        "service.instance.id": f"{NAMESPACE}.{meta['name']}.{status['name']}",
    }


def owner(pod):
    return pod["metadata"]["ownerReferences"][0]


def of_deployment(cluster, pod):
    return {"k8s.deployment.name": "web", "k8s.replicaset.name": owner(pod)["name"], "k8s.service.name": "front",
            "service.name": "web"}


def of_stateful_set(cluster, pod):
    return {"k8s.statefulset.name": "db", "service.name": "db"}


def of_job(cluster, pod):
    return {"k8s.job.name": "once", "service.name": "once"}


def of_cron_job(cluster, pod):
    return {"k8s.cronjob.name": "tick", "k8s.job.name": owner(pod)["name"], "service.name": "tick"}


def of_pod(cluster, pod):
    return {"service.name": pod["metadata"]["name"]}


def of_annotations(cluster, pod):
    return {"service.name": "till", "service.version": "7", "team": "checkout"}


def assert_seen(cluster, container, want):
    """All samples of CONTAINER have the attributes WANT; only k8s.service.name may be missing in the first ones."""
    def resources():
        return [{k: v for k, v in s.resource.items() if k.startswith(("k8s.", "container.", "service.", "team"))}
                for s in cluster.samples(container)]

    def last():
        r = resources()
        return r and ("k8s.service.name" in r[-1]) == ("k8s.service.name" in want) and r

    early = {k: v for k, v in want.items() if k != "k8s.service.name"}
    seen = wait_for(f"samples of {container[:12]}", last, interval=1)
    assert seen[-1] == want
    assert all(r in (want, early) for r in seen), seen


@pytest.mark.parametrize("name, own", [
    ("web", of_deployment), ("db", of_stateful_set), ("once", of_job), ("prepared", of_pod), ("told", of_annotations),
    ("brief", of_pod), ("tick", of_cron_job),  # last, because a CronJob starts with the next minute
])
def test_samples_carry_whose_they_are(market, name, own):
    pod = wait_for(f"a pod of {name}", lambda: pod_of(market, name))
    status = pod["status"]["containerStatuses"][0]
    container = status["containerID"].split("://")[1]
    assert_seen(market, container, {**common(market, pod, status), **own(market, pod)})


def test_samples_of_an_init_container_are_its_own(market):
    pod = wait_for("the pod", lambda: pod_of(market, "prepared"))
    status = pod["status"]["initContainerStatuses"][0]
    assert_seen(market, status["containerID"].split("://")[1], {**common(market, pod, status), **of_pod(market, pod)})
