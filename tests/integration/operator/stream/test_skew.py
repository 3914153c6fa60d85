# SPDX-License-Identifier: Apache-2.0
"""CRDs that are newer than the operator, as during an upgrade or after a roll-back: a condition names the unknown field, and
profiling goes on."""

import json

import pytest
from conftest import program
from test_stream import live, nodes  # noqa: F401

PLACES = {"profilingconfigs": "profile", "clusterprofilingconfigs": "defaults"}
NEW = "brightness"


def change_crds(cluster, op, **more):
    """Adds or removes the new field in both CRDs."""
    for plural, place in PLACES.items():
        path = f"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/{place}/properties/{NEW}"
        cluster.kubectl("patch", "crd", f"{plural}.profiling.kiln.dev", "--type=json", "-p",
                        json.dumps([{"op": op, "path": path, **more}]))


@pytest.fixture
def newer_crds(cluster):
    """Adds the new field to the CRDs and waits until the server keeps it: before that, the server prunes it."""
    path = "/apis/profiling.kiln.dev/v1alpha1/namespaces/default/profilingconfigs?dryRun=All"
    probe = program.thing("ProfilingConfig", "probe", {"profile": {NEW: 7}})
    change_crds(cluster, "add", value={"type": "integer", "description": "Of a later version."})
    program.wait_until("the new schema",
                       lambda: NEW in json.loads(cluster.request(path, "POST", probe))["spec"].get("profile", {}))
    yield
    cluster.kubectl("delete", "pcfg", "--all", "-n", "shop")
    cluster.patch("cpc", "cluster", {"spec": {"defaults": {NEW: None}}})
    change_crds(cluster, "remove")


def is_told(cluster, kind, name, namespace, place):
    """Whether the config is accepted and a condition says that the new field has no effect."""
    accepted = cluster.condition(kind, name, "Accepted", namespace)
    effective = cluster.condition(kind, name, "Effective", namespace)
    return accepted and effective and accepted[0] == "True" and effective[0] == "False" and \
        f"spec.{place}.{NEW}: unknown field" in effective[2]


def test_a_field_of_later_is_told_and_profiling_goes_on(cluster, nodes, serve, connect, token,  # noqa: F811
                                                        newer_crds):
    operator, port = serve()
    a = connect(port, token("agent-n1"))
    a.until("profiled by default", lambda a: live(a) and a.policy_of("web")["enabled"])
    written = program.wait_until("a DaemonSet", lambda: cluster.object("daemonset", "kiln-agent"))["metadata"]["generation"]
    cluster.apply(program.thing("ProfilingConfig", "fast", {"profile": {"sampling": {"hz": 97}, NEW: 7}}, "shop"))
    cluster.apply(program.thing("ProfilingConfig", "none", {"podSelector": {"matchLabels": {"app.kubernetes.io/name": "x"}},
                                                            "profile": {"mode": "Disabled", NEW: 7}}, "shop"))
    cluster.patch("cpc", "cluster", {"spec": {"defaults": {NEW: 7}}})
    told = [("pcfg", "fast", "shop", "profile"), ("pcfg", "none", "shop", "profile"),
            ("cpc", "cluster", program.NAMESPACE, "defaults")]
    a.until("97 Hz", lambda a: a.policy_of("web")["hz"] == 97)
    for what in told:
        program.wait_until(f"a word of {what}", lambda: is_told(cluster, *what))  # noqa: B023
    # An operator that starts when the field is already set behaves like the one before.
    operator.stop()
    _, port = serve("operator-1")
    b = connect(port, token("agent-n1"))
    b.until("97 Hz after the restart", lambda b: live(b) and b.policy_of("web")["hz"] == 97)
    assert b.policy_of("web")["enabled"] and b.policy_of("agent-n1")["enabled"]
    assert all(is_told(cluster, *what) for what in told)
    assert cluster.object("daemonset", "kiln-agent")["metadata"]["generation"] == written
    # mode: Disabled holds, though the config has an unknown field.
    cluster.kubectl("label", "pod", "web", "-n", "shop", "app.kubernetes.io/name=x", "--overwrite")
    b.until("off", lambda b: not b.policy_of("web")["enabled"])
    cluster.kubectl("label", "pod", "web", "-n", "shop", "app.kubernetes.io/name=web", "--overwrite")
    b.until("on again", lambda b: b.policy_of("web")["enabled"])
