# SPDX-License-Identifier: Apache-2.0
"""crds/admission.yaml: the requests that each policy rejects, warns about or admits, by user."""

import pytest

from conftest import thing, wait_until
from table import FULL_OTLP, otlp

OPERATOR = "system:serviceaccount:kiln-system:kiln-operator"
DENIED = "ValidatingAdmissionPolicy 'kiln-tenant-secrets' with binding 'kiln-tenant-secrets' denied request: "
RAILS = "Validation failed for ValidatingAdmissionPolicy 'kiln-guardrails' with binding 'kiln-guardrails': "
NODES = "Validation failed for ValidatingAdmissionPolicy 'kiln-nodes' with binding 'kiln-nodes': "
WITH_SECRET = otlp(name="own", headersFrom=FULL_OTLP["headersFrom"])


def config(spec, namespace="team", name="config"):
    return thing("ProfilingConfig", name, spec, namespace)


@pytest.fixture(scope="module")
def world(cluster, client):
    """Namespaces, and users: "writer" may write configs everywhere, "owner" may also read Secrets in "team". Waits until the
    policies are in effect."""
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "test-writer"},
            "rules": [{"apiGroups": ["profiling.kiln.dev"], "verbs": ["*"],
                       "resources": ["profilingconfigs", "profilingnodes", "profilingnodes/status"]}]}
    reader = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "test-reader"},
              "rules": [{"apiGroups": [""], "verbs": ["get"], "resources": ["secrets"]}]}

    def binding(kind, name, role, *users, **meta):
        return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name, **meta},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": u} for u in users]}

    def namespace(name, **labels):
        return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}

    cluster.apply([namespace("team", a="b"), namespace("kiln-system", **{"app.kubernetes.io/part-of": "kiln"}),
                   role, reader,
                   binding("ClusterRoleBinding", "test-writer", "test-writer", "writer", "owner", OPERATOR),
                   binding("RoleBinding", "test-reader", "test-reader", "owner", namespace="team")])
    rails = thing("ClusterProfilingConfig", "cluster", {
        "destinations": [otlp(), otlp(name="secret")],
        "guardrails": {"sampling": {"minHz": 5, "maxHz": 97}, "offCPU": {"mode": "Forbidden", "maxPerMille": 50},
                       "deniedTracers": ["perl", "php"], "allowedDestinations": ["main"]}})
    try:
        assert client.create(rails).status == 201
        wait_until("kiln-tenant-secrets works", lambda: client.create(
            config({"destinations": [otlp()]}, "kiln-system"), dryRun="All").status == 403)
        wait_until("kiln-guardrails works", lambda: client.create(
            config({"profile": {"sampling": {"hz": 500}}}), dryRun="All").warnings)
        wait_until("kiln-nodes works", lambda: client.create(
            thing("ProfilingNode", "n", {"nodeName": "n"}), dryRun="All").warnings)
        yield rails
    finally:
        client.delete(rails)


def test_a_secret_is_named_by_who_may_read_it(world, client):
    own = config({"destinations": [WITH_SECRET]})
    refused = client.create(own, user="writer", dryRun="All")
    assert refused.status == 403
    assert refused.message == (
        'profilingconfigs.profiling.kiln.dev "config" is forbidden: ' + DENIED +
        "spec.destinations: want Secrets named only by who may get secrets in namespace team, got writer")
    assert client.create(own, user="owner", dryRun="All").status == 201
    assert client.create(own, dryRun="All").status == 201  # the admin
    for tls in ({"caSecretRef": {"name": "a", "key": "b"}}, {"clientCertificateSecretRef": {"name": "a"}}):
        made = config({"destinations": [otlp(tls=tls)]})
        assert client.create(made, user="writer", dryRun="All").status == 403
        assert client.create(made, user="owner", dryRun="All").status == 201
    # in another namespace "owner" may not read Secrets
    elsewhere = config({"destinations": [WITH_SECRET]}, "default")
    assert client.create(elsewhere, user="owner", dryRun="All").status == 403
    # without a reference to a Secret the policy does not apply
    assert client.create(config({"destinations": [otlp(name="own")]}), user="writer", dryRun="All").status == 201
    assert client.create(config({}), user="writer", dryRun="All").status == 201


def test_only_who_changes_destinations_is_asked(world, client):
    own = config({"destinations": [WITH_SECRET]})
    assert client.create(own, user="owner").status == 201
    try:
        assert client.patch(own, {"metadata": {"labels": {"a": "b"}}}, user="writer").status == 200
        assert client.patch(own, {"spec": {"profile": {"mode": "Disabled"}}}, user="writer").status == 200
        other = {"spec": {"destinations": [{**WITH_SECRET, "otlp": {**WITH_SECRET["otlp"], "endpoint": "evil:4317"}}]}}
        assert client.patch(own, other, user="writer").status == 403
        assert client.patch(own, {"spec": {"destinations": None}}, user="writer").status == 200
    finally:
        client.delete(own)


def test_no_tenant_destination_beside_the_clusters_secrets(world, client):
    answer = client.create(config({"destinations": [otlp(name="own")]}, "kiln-system"), dryRun="All")
    assert answer.status == 403
    assert answer.message == (
        'profilingconfigs.profiling.kiln.dev "config" is forbidden: ' + DENIED +
        "spec.destinations: want none in the operator's namespace, kiln-system; they belong to the "
        "ClusterProfilingConfig")
    assert client.create(config({"profile": {"mode": "Disabled"}}, "kiln-system"), dryRun="All").status == 201


@pytest.mark.parametrize("spec, warning", [
    ({"profile": {"sampling": {"hz": 499}}},
     "spec.profile.sampling.hz: the guard-rails want 5..97, got 499, which is clamped"),
    ({"profile": {"sampling": {"hz": 4}}},
     "spec.profile.sampling.hz: the guard-rails want 5..97, got 4, which is clamped"),
    ({"profile": {"offCPU": {"mode": "Enabled"}}},
     "spec.profile.offCPU.mode: the guard-rails forbid off-CPU profiling, it stays Disabled"),
    ({"profile": {"offCPU": {"perMille": 51}}},
     "spec.profile.offCPU.perMille: the guard-rails want at most 50, got 51, which is clamped"),
    ({"profile": {"tracers": {"php": "Auto", "perl": "Enabled", "go": "Enabled"}}},
     "spec.profile.tracers: the guard-rails deny perl, php, which stay Disabled"),
    ({"profile": {"destinationRefs": ["main", "secret"]}},
     'spec.profile.destinationRefs: the guard-rails do not allow "secret", not used'),
    ({"destinations": [otlp(name="own")]},
     "spec.destinations: the guard-rails forbid destinations of a namespace's own, they are not used"),
])
def test_guardrails_warn_and_let_through(world, client, spec, warning):
    answer = client.create(config(spec), dryRun="All")
    assert (answer.status, answer.warnings) == (201, [RAILS + warning])


@pytest.mark.parametrize("spec", [
    {}, {"profile": {}}, {"profile": {"sampling": {"hz": 97}, "offCPU": {"mode": "Disabled", "perMille": 50},
                                      "tracers": {"php": "Disabled", "go": "Auto"}, "destinationRefs": ["main"]}}])
def test_within_the_guardrails_nothing_is_said(world, client, spec):
    answer = client.create(config(spec), dryRun="All")
    assert (answer.status, answer.warnings) == (201, [])


def test_guardrails_as_they_are_now(world, client):
    """Absent guard-rails allow all but tenants' own destinations, and so does an absent cluster config."""
    beyond = config({"profile": {"sampling": {"hz": 499}, "offCPU": {"mode": "Enabled", "perMille": 1000},
                                 "tracers": {"php": "Enabled"}, "destinationRefs": ["secret"]}})

    def said(made=beyond):
        answer = client.create(made, dryRun="All")
        assert answer.status == 201, answer.message
        return answer.warnings

    assert len(said()) == 5
    own = config({"destinations": [otlp(name="own")], "profile": {"destinationRefs": ["own"]}})
    assert len(said(own)) == 1
    open_ = {**world, "spec": {**world["spec"], "guardrails": {"tenantDestinations": "SameNamespaceSecret",
                                                               "allowedDestinations": []}}}
    bare = {**world, "spec": {}}
    try:
        client.patch(world, {"spec": {"guardrails": None}})
        wait_until("no guard-rails", lambda: said() == [])
        assert len(said(own)) == 1
        version = client.request("GET", client.path(world)).body["metadata"]["resourceVersion"]
        open_["metadata"] = {**world["metadata"], "resourceVersion": version}
        assert client.update(open_).status == 200
        wait_until("own destinations may be", lambda: said(own) == [])
        client.delete(bare)
        wait_until("no cluster config", lambda: said() == [] and said(own) == [])
    finally:
        client.delete(bare)
        assert client.create(world).status == 201
        wait_until("guard-rails again", lambda: len(said()) == 5)


def test_nodes_are_the_operators(world, client):
    node = thing("ProfilingNode", "n1", {"nodeName": "n1"})
    warning = [NODES + "profilingnodes are written by the operator, which will overwrite this"]
    made = client.create(node)
    try:
        assert (made.status, made.warnings) == (201, warning)
        status = {"status": {"kernel": "6.1"}}
        assert client.patch(node, status, user="writer", status=True).warnings == warning
        quiet = client.patch(node, {"status": {"kernel": "6.2"}}, user=OPERATOR, status=True)
        assert (quiet.status, quiet.warnings) == (200, [])
    finally:
        gone = client.delete(node)
    assert (gone.status, gone.warnings) == (200, [])  # garbage collection and users may delete nodes
