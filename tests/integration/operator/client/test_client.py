# SPDX-License-Identifier: Apache-2.0
"""The client against a real kube-apiserver: reads, applies, status, deletion, events, TokenReview, new CA."""
import json
import os
import pathlib
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[4]
sys.path.insert(0, str(ROOT / "tests/integration/lib"))
import envtest  # noqa: E402

DRIVE = os.environ.get("KILN_KUBE_DRIVE", str(ROOT / "build/dev/tests/kube_drive"))
WAIT = 240


class Drive:
    def __init__(self, cluster, kubeconfig=None):
        self.process = subprocess.Popen([DRIVE], env=cluster.env(kubeconfig), text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __call__(self, *words):
        words = [json.dumps(w) if isinstance(w, dict) else w for w in words]
        self.process.stdin.write("\t".join(words) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(WAIT) == 0


@pytest.fixture(scope="module")
def cluster():
    try:
        envtest.build()
    except RuntimeError as e:
        pytest.skip(str(e))
    with envtest.EnvTest() as c:
        yield c


@pytest.fixture
def drive(cluster):
    d = Drive(cluster)
    yield d
    d.end()


def config_map(name, **data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"},
            "data": data}


def managers(obj):
    return {(m["manager"], m["operation"], m.get("subresource", "")) for m in obj["metadata"]["managedFields"]}


def test_apply_creates_takes_over_and_leaves_what_is_the_same(cluster, drive):
    first = drive("apply", "configmaps", "default", "one", config_map("one", a="1"))
    assert first["status"] == 201, first
    cluster.kubectl("patch", "cm", "one", "--type=merge", "-p", '{"data":{"a":"2"}}')
    forced = drive("apply", "configmaps", "default", "one", config_map("one", a="1"))
    assert forced["status"] == 200 and forced["body"]["data"] == {"a": "1"}
    again = drive("apply", "configmaps", "default", "one", config_map("one", a="1"))
    assert again["body"]["metadata"]["resourceVersion"] == forced["body"]["metadata"]["resourceVersion"]
    assert ("kiln-operator", "Apply", "") in managers(again["body"])


def test_the_status_is_written_by_its_own_manager(cluster, drive):
    cluster.apply({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d", "namespace": "default"},
                   "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
                       "metadata": {"labels": {"a": "b"}},
                       "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
    done = drive("status", "daemonsets", "default", "d",
                 {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d", "namespace": "default"},
                  "status": {"currentNumberScheduled": 3, "desiredNumberScheduled": 4, "numberMisscheduled": 0,
                             "numberReady": 1}})
    assert done["status"] == 200, done
    assert cluster.get("ds", "d")["status"]["desiredNumberScheduled"] == 4
    assert ("kiln-operator-status", "Apply", "status") in managers(done["body"])


def test_a_stale_update_is_a_conflict(drive):
    made = drive("create", "configmaps", "default", config_map("two", a="1"))
    assert made["status"] == 201
    assert drive("create", "configmaps", "default", config_map("two"))["reason"] == "AlreadyExists"
    fresh = made["body"]
    fresh["data"]["a"] = "2"
    assert drive("update", "configmaps", "default", "two", fresh)["status"] == 200
    stale = drive("update", "configmaps", "default", "two", fresh)
    assert (stale["status"], stale["reason"]) == (409, "Conflict")
    assert "the object has been modified" in stale["message"]


def test_only_the_object_that_is_meant_is_deleted(drive):
    uid = drive("create", "configmaps", "default", config_map("three"))["body"]["metadata"]["uid"]
    other = drive("delete", "configmaps", "default", "three", "00000000-0000-0000-0000-000000000000")
    assert (other["status"], other["reason"]) == (409, "Conflict")
    assert drive("delete", "configmaps", "default", "three", uid)["status"] == 200
    gone = drive("get", "configmaps", "default", "three")
    assert (gone["status"], gone["reason"], gone["message"]) == (404, "NotFound", 'configmaps "three" not found')
    assert drive("delete", "configmaps", "default", "three", "-")["status"] == 404


def test_streams_answer_in_protobuf_and_errors_in_words(drive):
    accept = "application/vnd.kubernetes.protobuf, application/json"
    listed = drive("stream", "/api/v1/namespaces?limit=500", accept)
    assert listed["status"] == 200 and listed["type"] == "application/vnd.kubernetes.protobuf"
    assert listed["streamed"] > 100 and "body" not in listed
    refused = drive("stream", "/api/v1/namespaces?limit=x", accept)
    assert refused["status"] == 400 and refused["reason"] == "BadRequest" and "ParseInt" in refused["message"]


def events(cluster, note):
    return [e for e in cluster.get("events.events.k8s.io", "-A")["items"] if e.get("note") == note]


@pytest.mark.parametrize("about", [("configmaps", "default", "x"), ("nodes", "-", "n")])
def test_events_are_taken(cluster, drive, about):
    note = "what happened to " + about[0]
    assert drive("event", *about, "-", note) == {}
    drive("get", "namespaces", "-", "default")  # lets the event loop run
    end = time.monotonic() + WAIT
    while not events(cluster, note) and time.monotonic() < end:
        drive("get", "namespaces", "-", "default")
    (event,) = events(cluster, note)
    assert event["metadata"]["namespace"] == "default"
    assert event["reportingController"] == "profiling.kiln.dev/operator"
    assert event["regarding"]["name"] == about[2]


def test_a_note_that_is_too_long_is_cut(cluster, drive):
    drive("event", "configmaps", "default", "long", "-", "\u00e9" * 1000)
    end = time.monotonic() + WAIT
    while not events(cluster, "\u00e9" * 512) and time.monotonic() < end:
        drive("get", "namespaces", "-", "default")
    assert len(events(cluster, "\u00e9" * 512)) == 1


def test_token_reviews(cluster, drive):
    cluster.kubectl("create", "serviceaccount", "agent")
    token = cluster.token("default", "agent", audience="kiln-operator")
    review = drive("review", token, "kiln-operator")
    assert review["authenticated"] and review["username"] == "system:serviceaccount:default:agent", review
    assert not drive("review", token, "somebody-else")["authenticated"]
    bad = drive("review", "no.such.token", "kiln-operator")
    assert not bad["authenticated"] and bad["error"] and bad["status"] == 201


def test_who_may_not_hears_why(cluster):
    d = Drive(cluster, cluster.user("nobody"))
    refused = d("get", "secrets", "kube-system", "x")
    assert (refused["status"], refused["reason"]) == (403, "Forbidden")
    assert 'User "nobody" cannot get resource "secrets"' in refused["message"]
    d.end()


def test_a_new_ca_and_a_server_that_was_away(cluster, drive):
    assert drive("get", "namespaces", "-", "default")["status"] == 200
    cluster.rotate_ca()
    end = time.monotonic() + WAIT
    while (answer := drive("get", "namespaces", "-", "default"))["status"] != 200:
        assert answer["status"] == 0 and answer["message"], answer
        assert time.monotonic() < end, answer
        time.sleep(0.2)
