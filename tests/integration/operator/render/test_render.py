# SPDX-License-Identifier: Apache-2.0
"""A current API server accepts the rendered objects, and the operator finds no difference in what the server returns."""

import copy
import json
import os
import subprocess

import pytest
from conftest import DATA, DUMP

APPLY = ("apply", "--server-side", "--field-manager=kiln-operator", "--force-conflicts", "--validate=strict")
KINDS = "serviceaccounts,roles,rolebindings,networkpolicies,services,configmaps,daemonsets"


def render(name):
    done = subprocess.run([DUMP, DATA / f"{name}.json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def drift(name, live, tmp_path):
    path = tmp_path / "live.json"
    path.write_text(json.dumps(live))
    done = subprocess.run([DUMP, DATA / f"{name}.json", "--covers", path], capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    return [line for line in done.stdout.splitlines() if not line.startswith("same ")]


def listed(cluster):
    return cluster.get("-n", "kiln-system", KINDS, "-l", "app.kubernetes.io/managed-by=kiln-operator")


@pytest.fixture(scope="module")
def live(cluster, installed):
    cluster.kubectl(*APPLY, "-f", "-", input=render("full"))
    return listed(cluster)


@pytest.mark.parametrize("name", ["minimal", "full"])
def test_the_server_takes_it(cluster, installed, name):
    said = cluster.kubectl(*APPLY, "--dry-run=server", "-f", "-", input=render(name), check=False)
    assert said.returncode == 0, said.stderr
    assert "Warning" not in said.stderr
    assert all("serverside-applied" in line for line in said.stdout.splitlines())


def test_what_comes_back_is_seen_as_the_same(live, tmp_path):
    assert drift("full", live, tmp_path) == []


def test_applying_it_again_changes_nothing(cluster, live):
    cluster.kubectl(*APPLY, "-f", "-", input=render("full"))
    before = {i["metadata"]["uid"]: i["metadata"]["resourceVersion"] for i in live["items"]}
    assert {i["metadata"]["uid"]: i["metadata"]["resourceVersion"] for i in listed(cluster)["items"]} == before


def anonymous(objects):
    """The objects without the values that differ between servers."""
    objects = copy.deepcopy(objects)
    objects.pop("metadata", None)
    for item in objects["items"]:
        for key in ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"):
            item["metadata"].pop(key, None)
        item.pop("status", None)
    return sorted(objects["items"], key=lambda i: (i["kind"], i["metadata"]["name"]))


def test_the_unit_tests_look_at_such_objects(live):
    """tests/data/render/live.json, which unit tests read, has the server's objects. KILN_UPDATE_GOLDEN=1 writes it anew."""
    if os.environ.get("KILN_UPDATE_GOLDEN"):
        kept = anonymous(live)
        (DATA / "live.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": kept}, indent=1) + "\n")
    assert anonymous(live) == anonymous(json.loads((DATA / "live.json").read_text()))


EDITS = [
    ("daemonset", "kiln-agent", '{"spec":{"template":{"spec":{"hostPID":false}}}}'),
    ("daemonset", "kiln-agent-gpu", '{"spec":{"template":{"spec":{"containers":[{"name":"agent","image":"x"}]}}}}'),
    ("daemonset", "kiln-agent", '{"spec":{"template":{"spec":{"tolerations":null}}}}'),
    ("daemonset", "kiln-agent", '{"spec":{"updateStrategy":{"rollingUpdate":{"maxUnavailable":7}}}}'),
    ("daemonset", "kiln-agent", '{"spec":{"template":{"spec":{"containers":[{"name":"agent","resources":{"limits":{"memory":"1Gi"}}}]}}}}'),
    ("daemonset", "kiln-agent", '{"metadata":{"labels":{"app.kubernetes.io/part-of":"other"}}}'),
    ("configmap", "kiln-agent", '{"data":{"agent.yaml":"receivers: {}"}}'),
    ("configmap", "kiln-agent-batch", '{"metadata":{"annotations":{"profiling.kiln.dev/config-hash":"0"}}}'),
    ("configmap", "kiln-agent", '{"metadata":{"ownerReferences":null}}'),
    ("service", "kiln-agent-metrics", '{"spec":{"selector":{"app.kubernetes.io/name":"other"}}}'),
    ("networkpolicy", "kiln-agent", '{"spec":{"ingress":[]}}'),
    ("serviceaccount", "kiln-agent", '{"automountServiceAccountToken":true}'),
    ("role", "kiln-stream-destinations", '{"rules":[{"apiGroups":[""],"resources":["secrets"],"verbs":["get"]}]}'),
    ("rolebinding", "kiln-stream-destinations", '{"subjects":null}'),
]


@pytest.mark.parametrize("kind, name, patch", EDITS, ids=lambda v: v[:60])
def test_an_edit_is_seen_and_repaired_by_one_apply(cluster, live, tmp_path, kind, name, patch):
    cluster.kubectl("patch", "-n", "kiln-system", kind, name, "-p", patch)
    seen = drift("full", listed(cluster), tmp_path)
    assert len(seen) == 1 and seen[0].startswith("drift ") and seen[0].endswith("/" + name)
    cluster.kubectl(*APPLY, "-f", "-", input=render("full"))
    assert drift("full", listed(cluster), tmp_path) == []


ADDITIONS = [
    ("daemonset", "kiln-agent", '{"metadata":{"labels":{"team":"other"},"annotations":{"a":"b"}}}'),
    ("daemonset", "kiln-agent", '{"spec":{"template":{"spec":{"containers":[{"name":"agent","env":[{"name":"A","value":"b"}]}]}}}}'),
    ("daemonset", "kiln-agent", '{"spec":{"minReadySeconds":3}}'),
    ("configmap", "kiln-agent", '{"data":{"other":"x"}}'),
    ("service", "kiln-agent-metrics", '{"spec":{"sessionAffinity":"ClientIP"}}'),
]


@pytest.mark.parametrize("kind, name, patch", ADDITIONS, ids=lambda v: v[:60])
def test_what_others_add_is_theirs(cluster, live, tmp_path, kind, name, patch):
    cluster.kubectl("patch", "-n", "kiln-system", kind, name, "-p", patch)
    assert drift("full", listed(cluster), tmp_path) == []


def test_a_missing_object_is_seen(cluster, live, tmp_path):
    objects = listed(cluster)
    objects["items"] = [i for i in objects["items"] if i["kind"] != "Service"]
    assert drift("full", objects, tmp_path) == ["missing Service/kiln-agent-metrics"]
