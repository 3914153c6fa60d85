# SPDX-License-Identifier: Apache-2.0
"""The excesses of one namespace's owner do not affect other namespaces."""

import json

import pytest
from conftest import wait_until

CONFIGS = "/apis/profiling.kiln.dev/v1alpha1/namespaces/{}/profilingconfigs"


def config(name, spec, annotations=None):
    return {"apiVersion": "profiling.kiln.dev/v1alpha1", "kind": "ProfilingConfig",
            "metadata": {"name": name, "annotations": annotations or {}}, "spec": spec}


@pytest.fixture
def evil(cluster):
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "evil"}})
    yield "evil"
    cluster.kubectl("delete", "pcfg", "--all", "-n", "evil")


def is_accepted(cluster, name, namespace, wanted=("True", "Accepted")):
    return (cluster.condition("pcfg", name, "Accepted", namespace) or [])[:2] == wanted


def generations(cluster, name, namespace):
    """(metadata.generation, status.observedGeneration) of a config."""
    found = json.loads(cluster.request(f"{CONFIGS.format(namespace)}/{name}"))
    return found["metadata"]["generation"], found["status"]["observedGeneration"]


def others_are_served(cluster, namespace):
    cluster.kubectl("create", "namespace", namespace)
    cluster.request(CONFIGS.format(namespace), "POST", config("off", {"profile": {"mode": "Disabled"}}))
    wait_until("another tenant's config", lambda: is_accepted(cluster, "off", namespace))


def test_annotations_of_one_namespace_take_no_room(cluster, lone_operator, evil):
    for i in range(140):
        cluster.request(CONFIGS.format(evil), "POST", config(
            f"c{i}", {"podSelector": {"matchLabels": {"n": str(i)}}}, {"filler": "x" * (250 << 10)}))
    others_are_served(cluster, "beside-annotations")
    wait_until("the last one", lambda: is_accepted(cluster, "c139", evil))


def test_a_namespace_beyond_its_quota_is_told_and_heals(cluster, lone_operator, evil):
    headers = [{"name": f"h{i}", "value": "x" * 4000} for i in range(16)]
    spec = {"destinations": [{"name": f"d{i}", "otlp": {"endpoint": "x:1", "headers": headers}} for i in range(4)]}
    for i in range(20):
        cluster.request(CONFIGS.format(evil), "POST", config(
            f"c{i}", {**spec, "podSelector": {"matchLabels": {"n": str(i)}}}))
    # Configs beyond the quota, which are not kept in the cache, get a status for their current generation, too.
    wait_until("the refusal of each", lambda: all(
        is_accepted(cluster, f"c{i}", evil, ("False", "NamespaceOverQuota")) for i in range(20)))
    cluster.kubectl("patch", "pcfg", "c19", "-n", evil, "--type=merge", "-p", '{"spec":{"priority":3}}')
    wait_until("the refusal of a new version", lambda: generations(cluster, "c19", evil) == (2, 2))
    others_are_served(cluster, "beside-quota")
    for i in range(8, 20):
        cluster.kubectl("delete", "pcfg", f"c{i}", "-n", evil)
    wait_until("all of them again", lambda: all(is_accepted(cluster, f"c{i}", evil) for i in range(8)))
