# SPDX-License-Identifier: Apache-2.0
"""kustomize/: one command installs, repeating it changes nothing, and the roles grant exactly the needed rights."""

import json
import os
import re
import subprocess
import time

import pytest
from conftest import OVERLAYS, ROOT

OPERATOR = "system:serviceaccount:kiln-system:kiln-operator"
STREAM = "system:serviceaccount:kiln-system:kiln-stream"
AGENT = "system:serviceaccount:kiln-system:kiln-agent"
# kubectl always sends a PodDisruptionBudget's selector ("patchStrategy: replace") and reports a change that is none.
ALWAYS_SENT = {"poddisruptionbudget.policy/kiln-operator", "poddisruptionbudget.policy/kiln-stream"}


def versions(cluster, overlay="default"):
    manifest = cluster.kubectl("kustomize", OVERLAYS / overlay)
    items = json.loads(cluster.kubectl("get", "-f", "-", "-o", "json", input=manifest))["items"]
    return {(i["kind"], i["metadata"]["name"]): i["metadata"]["resourceVersion"] for i in items}


def test_one_command_installs(installed):
    assert installed.returncode == 0, installed.stderr
    assert "Warning" not in installed.stderr
    lines = installed.stdout.splitlines()
    assert len(lines) > 15 and all(line.endswith(" created") for line in lines), installed.stdout


def test_a_second_apply_changes_nothing(cluster, installed):
    before = versions(cluster)
    said = cluster.kubectl("apply", "-k", OVERLAYS / "default").splitlines()
    changed = {line.split()[0] for line in said if not line.endswith(" unchanged")}
    assert changed <= ALWAYS_SENT
    assert versions(cluster) == before
    assert cluster.kubectl("diff", "-k", OVERLAYS / "default") == ""


def test_server_side_apply_works_too(cluster, installed):
    said = cluster.kubectl("apply", "--server-side", "--dry-run=server", "--force-conflicts", "-k",
                           OVERLAYS / "default", check=False)
    assert said.returncode == 0, said.stderr


def test_dev_overlay_applies(cluster, installed):
    cluster.kubectl("apply", "-k", OVERLAYS / "dev", "--dry-run=server")
    objects = cluster.kubectl("kustomize", OVERLAYS / "dev")
    assert objects.count("imagePullPolicy: Never") == objects.count("replicas: 1\n") == objects.count("- debug") == 2


def test_the_first_config_is_one_that_the_server_takes(cluster, installed):
    config = cluster.get("configmap", "-n", "kiln-system", "kiln-first-config")["data"]["cluster.yaml"]
    assert config == (OVERLAYS / "default/cluster.yaml").read_text()
    cluster.apply(config, "--dry-run=server")


def test_the_documented_overlay_names_both_images(cluster, tmp_path):
    """The overlay in docs/operator.md, "Install", sets both images."""
    text = re.search(r"```yaml\n(resources:.*?)```", (ROOT / "docs/operator.md").read_text(), re.S).group(1)
    relative = os.path.relpath(OVERLAYS / "default", tmp_path.resolve())
    (tmp_path / "kustomization.yaml").write_text(text.replace("../default", relative))
    made = cluster.kubectl("kustomize", tmp_path)
    assert made.count("image: registry.example/kiln-operator:0.1.0\n") == made.count("kind: Deployment\n") == 2
    assert "value: registry.example/kiln-agent:0.1.0\n" in made and "value: kiln-agent:0.1.0" not in made


def test_the_documented_overlay_brings_monitoring(cluster, tmp_path):
    """The overlay in docs/monitoring.md contains the objects for the Prometheus operator (tests/integration/monitoring)."""
    text = re.search(r"```yaml\n(resources:.*?)```", (ROOT / "docs/monitoring.md").read_text(), re.S).group(1)
    for path in (OVERLAYS / "production", ROOT / "kustomize/components/monitoring"):
        text = text.replace(f"../{path.name}" if path.parent == OVERLAYS else f"../../components/{path.name}",
                            os.path.relpath(path, tmp_path.resolve()))
    (tmp_path / "kustomization.yaml").write_text(text)
    made = cluster.kubectl("kustomize", tmp_path)
    assert made.count("kind: PodMonitor\n") == 3 and made.count("kind: PrometheusRule\n") == 1
    assert made.count("grafana_dashboard: ") == 1 and "kiln-agents.json: |" in made and "kiln-operator.json: |" in made


def wait_for(what, condition, seconds=240):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.2)


class Operator:
    """The real operator, with exactly the rights of the shipped roles."""

    def __init__(self, cluster, log):
        kubeconfig = cluster.user(OPERATOR, "system:serviceaccounts", "system:authenticated")
        self.log = open(log, "w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [os.environ["KILN_OPERATOR"], "--kubeconfig", kubeconfig, "--namespace", HERE, "--agent-image", "agent:1",
             "--health-address", "127.0.0.1:0", "--metrics-address", "127.0.0.1:0"],
            stdout=self.log, stderr=self.log, env={**os.environ, "POD_NAME": "operator-0"})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(240)
        self.log.seek(0)
        text = self.log.read()
        assert "orbidden" not in text, text


def used(cluster):
    notes = cluster.get("configmap", "-n", HERE, "kiln-first-config")["metadata"]["annotations"]
    return notes.get("profiling.kiln.dev/used") == "true"


def exists(cluster, *what):
    return cluster.kubectl("get", *what, check=False).returncode == 0


@pytest.mark.skipif("KILN_OPERATOR" not in os.environ, reason="this build has no kiln-operator")
def test_the_first_config_is_made_once(cluster, installed, tmp_path):
    assert not exists(cluster, "cpc", "cluster")
    with Operator(cluster, tmp_path / "first.log"):
        wait_for("the first config", lambda: exists(cluster, "cpc", "cluster"))
        wait_for("its mark", lambda: used(cluster))
        wait_for("the agents", lambda: exists(cluster, "daemonset", "-n", HERE, "kiln-agent"))
    cluster.kubectl("delete", "cpc", "cluster")
    with Operator(cluster, tmp_path / "second.log") as second:
        wait_for("the lead", lambda: "kiln-operator" in cluster.kubectl("get", "lease", "-n", HERE, "-o", "name"))
        wait_for("the agents' end", lambda: not exists(cluster, "daemonset", "-n", HERE, "kiln-agent"))
        assert second.process.poll() is None
        assert not exists(cluster, "cpc", "cluster")
    # The annotation that marks the ConfigMap as used is a field of the operator: kubectl sees no change.
    assert "configmap/kiln-first-config unchanged" in cluster.kubectl("apply", "-k", OVERLAYS / "default")
    assert used(cluster)


@pytest.mark.parametrize("deployment", ["kiln-operator", "kiln-stream"])
def test_the_operators_pods_are_restricted(cluster, installed, deployment):
    """Pod Security accepts the pods at its strictest level, "restricted"."""
    pod = cluster.get("deployment", "-n", "kiln-system", deployment)["spec"]["template"]
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {
        "name": "strict", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}})
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe", "namespace": "strict"},
           "spec": {**pod["spec"], "serviceAccountName": "default"}}
    said = cluster.kubectl("apply", "--dry-run=server", "-f", "-", input=json.dumps(pod), check=False)
    assert said.returncode == 0 and "would violate" not in said.stderr, said.stderr


def allowed(cluster, who, verb, resource, namespace="", group="", name="", subresource=""):
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {
        "user": who, "groups": ["system:serviceaccounts", "system:authenticated"],
        "resourceAttributes": {"verb": verb, "resource": resource, "namespace": namespace, "group": group,
                               "name": name, "subresource": subresource}}}
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    return json.loads(cluster.request(path, "POST", review))["status"]["allowed"]


KILN, RBAC = "profiling.kiln.dev", "rbac.authorization.k8s.io"
HERE = "kiln-system"
MAY = (
    [(v, r, "", "", "", "") for v in ("list", "watch") for r in ("pods", "namespaces", "nodes")] +
    [(v, r, "", KILN, "", "") for v in ("list", "watch")
     for r in ("clusterprofilingconfigs", "profilingconfigs", "profilingnodes")] +
    [("patch", r, "", KILN, "", "status") for r in ("clusterprofilingconfigs", "profilingconfigs", "profilingnodes")] +
    [("create", "clusterprofilingconfigs", "", KILN, "", ""), ("create", "events", "team", "events.k8s.io", "", "")] +
    [(v, r, HERE, "", "", "") for v in ("list", "watch", "create", "patch", "delete")
     for r in ("configmaps", "serviceaccounts", "services")] +
    [(v, "daemonsets", HERE, "apps", "", "") for v in ("list", "watch", "create", "patch", "delete")] +
    [(v, "networkpolicies", HERE, "networking.k8s.io", "", "") for v in ("list", "watch", "create", "patch", "delete")] +
    [("create", "leases", HERE, "coordination.k8s.io", "", "")] +
    [(v, "leases", HERE, "coordination.k8s.io", "kiln-operator", "") for v in ("get", "update")] +
    [("create", "secrets", HERE, "", "", "")] + [(v, "secrets", HERE, "", "kiln-stream-ca", "") for v in ("get", "update")] +
    [(v, "profilingnodes", "", KILN, "", "") for v in ("create", "patch")] + [("get", "nodes", "", "", "", "")] +
    [(v, r, HERE, RBAC, "", "") for v in ("list", "watch", "create", "patch", "delete") for r in ("roles", "rolebindings")] +
    [(v, "roles", HERE, RBAC, "kiln-stream-destinations", "") for v in ("escalate", "bind")]
)
STREAM_MAY = (
    [(v, r, "", "", "", "") for v in ("list", "watch") for r in ("pods", "namespaces", "nodes")] +
    [("get", "secrets", HERE, "", "kiln-stream-ca", "")] +
    [(v, "endpointslices", "", "discovery.k8s.io", "", "") for v in ("list", "watch")] +
    [(v, r, "", KILN, "", "") for v in ("list", "watch") for r in ("clusterprofilingconfigs", "profilingconfigs")] +
    [("create", "tokenreviews", "", "authentication.k8s.io", "", "")]
)
MAY_NOT = (
    [(v, "secrets", n, "", "", "") for v in ("list", "watch", "patch", "delete") for n in ("", HERE, "team")] +
    [("get", "secrets", n, "", "", "") for n in ("", "team")] + [("delete", "profilingnodes", "", KILN, "", "")] +
    [("update", "secrets", HERE, "", "other", "")] + [("create", "secrets", "team", "", "", "")] +
    [("get", "secrets", "team", "", "kiln-stream-ca", ""), ("delete", "secrets", HERE, "", "kiln-stream-ca", "")] +
    [(v, "pods", n, "", "", s) for v in ("create", "patch", "delete") for n in (HERE, "team") for s in ("", "exec")] +
    [(v, r, "team", "", "", "") for v in ("get", "list", "create", "patch", "delete")
     for r in ("configmaps", "serviceaccounts", "services")] +
    [(v, "daemonsets", "team", "apps", "", "") for v in ("list", "create", "patch", "delete")] +
    [(v, "deployments", HERE, "apps", "", "") for v in ("create", "patch", "delete")] +
    [(v, r, n, RBAC, "", "") for v in ("create", "patch", "escalate", "bind") for n in ("", "team")
     for r in ("clusterroles", "clusterrolebindings", "roles", "rolebindings")] +
    [(v, "roles", HERE, RBAC, name, "") for v in ("escalate", "bind") for name in ("", "kiln-operator")] +
    [(v, r, "", KILN, "", "") for v in ("update", "patch", "delete")
     for r in ("clusterprofilingconfigs", "profilingconfigs")] +
    [("create", "profilingconfigs", "team", KILN, "", ""), ("update", "leases", HERE, "coordination.k8s.io", "other", ""),
     ("delete", "leases", HERE, "coordination.k8s.io", "kiln-operator", ""), ("patch", "nodes", "", "", "", ""),
     ("create", "serviceaccounts", HERE, "", "kiln-agent", "token"), ("get", "nodes", "", "", "", "proxy"),
     ("impersonate", "users", "", "", "", "")]
)


@pytest.mark.parametrize("question", MAY, ids=lambda q: "-".join(filter(None, q)))
def test_the_operator_may(cluster, installed, question):
    verb, resource, namespace, group, name, sub = question
    assert allowed(cluster, OPERATOR, verb, resource, namespace, group, name, sub)


@pytest.mark.parametrize("question", STREAM_MAY, ids=lambda q: "-".join(filter(None, q)))
def test_the_stream_may(cluster, installed, question):
    verb, resource, namespace, group, name, sub = question
    assert allowed(cluster, STREAM, verb, resource, namespace, group, name, sub)


@pytest.mark.parametrize("question", [q for q in MAY + MAY_NOT if q not in STREAM_MAY] + [
    ("get", "secrets", HERE, "", "", ""), ("get", "secrets", HERE, "", "backend", "")],
    ids=lambda q: "-".join(filter(None, q)))
def test_the_stream_may_not(cluster, installed, question):
    verb, resource, namespace, group, name, sub = question
    assert not allowed(cluster, STREAM, verb, resource, namespace, group, name, sub)


@pytest.mark.parametrize("question", MAY_NOT + [
    ("get", "secrets", HERE, "", "", ""), ("get", "secrets", HERE, "", "backend", ""),
    ("create", "tokenreviews", "", "authentication.k8s.io", "", "")],
    ids=lambda q: "-".join(filter(None, q)))
def test_the_operator_may_not(cluster, installed, question):
    verb, resource, namespace, group, name, sub = question
    assert not allowed(cluster, OPERATOR, verb, resource, namespace, group, name, sub)


@pytest.mark.parametrize("question", [q for q in MAY + STREAM_MAY + MAY_NOT], ids=lambda q: "-".join(filter(None, q)))
def test_the_agent_may_nothing(cluster, installed, question):
    verb, resource, namespace, group, name, sub = question
    assert not allowed(cluster, AGENT, verb, resource, namespace, group, name, sub)


def aggregated(cluster, role):
    """{resource: verbs} that ROLE gets by aggregation, computed here, since the aggregating controller does not run."""
    roles = cluster.get("clusterroles")["items"]
    selectors = next(r for r in roles if r["metadata"]["name"] == role)["aggregationRule"]["clusterRoleSelectors"]
    verbs = {}
    for each in roles:
        labels = each["metadata"].get("labels", {})
        if not any(s["matchLabels"].items() <= labels.items() for s in selectors):
            continue
        for rule in each.get("rules") or []:
            if rule.get("apiGroups") == [KILN]:
                for resource in rule["resources"]:
                    verbs.setdefault(resource, set()).update(rule["verbs"])
    return verbs


READ = {"get", "list", "watch"}
WRITE = {"create", "update", "patch", "delete", "deletecollection"}


def test_roles_are_aggregated(cluster, installed):
    """The standard roles view, edit and admin get Kiln's rules. By their own labels edit includes view, and admin edit."""
    kinds = {"clusterprofilingconfigs", "profilingconfigs", "profilingnodes"}
    assert aggregated(cluster, "view") == {kind: READ for kind in kinds}
    for role in ("edit", "admin"):
        got = aggregated(cluster, role)
        assert got["profilingconfigs"] == READ | WRITE
        assert got["clusterprofilingconfigs"] == READ and got["profilingnodes"] == READ


@pytest.mark.parametrize("who, resource, schema", [
    (OPERATOR, "leases", "kiln-operator-leases"), (OPERATOR, "pods", "kiln-operator"), (STREAM, "pods", "kiln-operator")])
def test_requests_have_their_own_priority(cluster, installed, who, resource, schema):
    """The API server names the FlowSchema that took a request by its uid."""
    uid = cluster.get("flowschema", schema)["metadata"]["uid"]
    kubeconfig = cluster.user(who, "system:serviceaccounts", "system:authenticated")
    path = {"leases": f"/apis/coordination.k8s.io/v1/namespaces/{HERE}/leases/kiln-operator",
            "pods": "/api/v1/pods"}[resource]
    said = cluster.kubectl("get", "--raw", path, "-v=9", kubeconfig=kubeconfig, check=False)
    assert uid in said.stderr
