# SPDX-License-Identifier: Apache-2.0
"""Every overlay: kustomize builds it, a real API server accepts it, a second apply changes nothing."""

import json
import os
import re
import subprocess
import sys

import pytest
import yaml

from conftest import COMPONENT, OVERLAYS, ROOT, apply_twice, check_agent, first_config, kind, render, secret_files

NAMES = sorted(p.name for p in OVERLAYS.iterdir())


def templates(items):
    """(kind/name, namespace, pod template) of the Deployments, StatefulSets and DaemonSets."""
    return [(f"{i['kind']}/{i['metadata']['name']}", i["metadata"]["namespace"], i["spec"]["template"])
            for i in items if i["kind"] in ("Deployment", "StatefulSet", "DaemonSet")]


def test_pyroscope_applied_twice_changes_nothing(installed):
    assert "statefulset.apps/pyroscope created" in installed


def test_production_applied_twice_changes_nothing(cluster, installed):
    assert "priorityclass.scheduling.k8s.io/kiln-agent created" in apply_twice(cluster, OVERLAYS / "production")


def test_production_and_pyroscope_go_together(cluster, installed, tmp_path):
    """The overlay of docs/deploy.md, which combines both, builds and is accepted."""
    page = (ROOT / "docs/deploy.md").read_text()
    text = re.search(r"```yaml\n(resources:.*?)```", page, re.S).group(1)
    cluster_yaml = re.search(r"```yaml\n(apiVersion: profiling.*?)```", page, re.S).group(1)
    here = tmp_path.resolve()
    text = text.replace("../production", os.path.relpath(OVERLAYS / "production", here))
    text = text.replace("../../components/pyroscope", os.path.relpath(COMPONENT, here))
    (here / "kustomization.yaml").write_text(text)
    (here / "cluster.yaml").write_text(cluster_yaml)
    said = cluster.kubectl("apply", "--dry-run=server", "-f", "-", input=cluster.manifest(here), check=False)
    assert said.returncode == 0 and "Warning" not in said.stderr, said.stderr
    items = cluster.build(here)
    assert kind(items, "StatefulSet", "pyroscope") and kind(items, "PriorityClass", "kiln-agent")
    assert first_config(cluster, items)["spec"]["destinations"][0]["name"] == "gateway"
    for name in ("kiln-operator", "kiln-stream"):
        operator, = kind(items, "Deployment", name)
        assert operator["spec"]["template"]["spec"]["containers"][0]["image"] == "registry.example/kiln-operator:0.1.0"


@pytest.mark.parametrize("name", NAMES)
def test_the_port_for_agents_is_where_nothing_is_written(cluster, name):
    """The Service selects only pods of role stream, by a port that they have; each role has its own ServiceAccount."""
    items = cluster.build(OVERLAYS / name)
    service, = kind(items, "Service", "kiln-operator-stream")
    found = {}
    for what, namespace, template in templates(items):
        if namespace == "kiln-system":
            container, = template["spec"]["containers"]
            ports = {p["name"] for p in container["ports"]}
            found[what] = (container["command"][1:3], template["spec"]["serviceAccountName"],
                           service["spec"]["selector"].items() <= template["metadata"]["labels"].items(),
                           service["spec"]["ports"][0]["targetPort"] in ports)
    assert found == {"Deployment/kiln-operator": (["--role", "controller"], "kiln-operator", False, False),
                     "Deployment/kiln-stream": (["--role", "stream"], "kiln-stream", True, True)}


@pytest.mark.parametrize("name", NAMES)
def test_images_are_pinned(cluster, name):
    for what, _, template in templates(cluster.build(OVERLAYS / name)):
        for container in template["spec"]["containers"]:
            assert re.fullmatch(r"[a-z./-]+:\d+\.\d+\.\d+", container["image"]), (what, container["image"])


@pytest.mark.parametrize("name", NAMES)
def test_the_first_config_is_one_that_server_and_agent_take(installed, cluster, name, tmp_path, secrets):
    config = first_config(cluster, cluster.build(OVERLAYS / name))
    made = render(cluster, cluster.build(OVERLAYS / name), tmp_path)
    text = kind(made, "ConfigMap", "kiln-agent")[0]["data"]["agent.yaml"]
    for destination in config["spec"]["destinations"]:
        (tmp_path / destination["name"]).mkdir()
        (tmp_path / destination["name"] / "ca.crt").write_bytes(secret_files(cluster, secrets)["ca.crt"])
    (tmp_path / "agent.yaml").write_text(text.replace("/etc/kiln-tls", str(tmp_path)))
    check_agent(tmp_path / "agent.yaml")


@pytest.mark.parametrize("name", NAMES if os.environ.get("KILN_MATRIX") == "1" else ["production", "pyroscope"])
def test_every_object_fits_the_servers_schema(installed, cluster, name, tmp_path):
    """Strict validation finds no unknown field in the overlay's objects or in those that the operator renders."""
    def applied(items):
        return cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", check=False,
                               input=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))

    items = cluster.build(OVERLAYS / name)
    made = render(cluster, items, tmp_path)
    said = applied(items + made)
    assert said.returncode == 0 and "Warning" not in said.stderr, said.stderr
    daemon, = kind(made, "DaemonSet")
    daemon["spec"]["template"]["spec"]["nodeSelecter"] = {}
    said = applied([daemon])
    assert said.returncode and "nodeSelecter" in said.stderr


def test_the_sample_workload_runs(cluster):
    """deploy/sample.yaml: the server accepts it even under Pod Security "restricted", and its program runs."""
    objects = {o["kind"]: o for o in yaml.safe_load_all((ROOT / "deploy/sample.yaml").read_text())}
    objects["Namespace"]["metadata"]["labels"] = {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster.apply(json.dumps(objects.pop("Namespace")))
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe", "namespace": "bakery"},
           "spec": objects["Deployment"]["spec"]["template"]["spec"]}
    for o in (*objects.values(), pod):
        said = cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", input=json.dumps(o), check=False)
        assert said.returncode == 0 and "Warning" not in said.stderr, said.stderr
    source = objects["ConfigMap"]["data"]["oven.py"]
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run([sys.executable, "-c", source], timeout=2, check=False)


def test_the_backends_pods_are_restricted(cluster, installed):
    """Pod Security in the namespace accepts each pod of the backend."""
    items = cluster.build(OVERLAYS / "pyroscope")
    pods = [t for t in templates(items) if t[1] == "pyroscope"]
    assert sorted(p[0] for p in pods) == ["Deployment/gateway", "Deployment/grafana", "StatefulSet/pyroscope"]
    for what, namespace, template in pods:
        pod = {"apiVersion": "v1", "kind": "Pod", "spec": template["spec"],
               "metadata": {"name": "probe", "namespace": namespace, "labels": template["metadata"]["labels"]}}
        said = cluster.kubectl("apply", "--dry-run=server", "-f", "-", input=json.dumps(pod), check=False)
        assert said.returncode == 0 and "violate" not in said.stderr, (what, said.stderr)


def test_what_pods_mount_is_there(cluster, installed, secrets):
    """Every ConfigMap (with its hash), claim and Secret that a pod mounts exists; hack/gateway-certs makes the Secrets."""
    items = cluster.build(OVERLAYS / "pyroscope")
    made = {(i["kind"], i["metadata"].get("namespace"), i["metadata"]["name"]) for i in items}
    for text in secrets.split("\n---\n"):
        secret = cluster.parse(text)
        made.add(("Secret", secret["metadata"]["namespace"], secret["metadata"]["name"]))
        assert cluster.kubectl("apply", "--dry-run=server", "-f", "-", input=text).endswith("(server dry run)\n")
    wanted = set()
    for _, namespace, template in templates(items):
        for volume in template["spec"].get("volumes", []):
            if "configMap" in volume:
                wanted.add(("ConfigMap", namespace, volume["configMap"]["name"]))
            if "persistentVolumeClaim" in volume:
                wanted.add(("PersistentVolumeClaim", namespace, volume["persistentVolumeClaim"]["claimName"]))
            if "secret" in volume:
                wanted.add(("Secret", namespace, volume["secret"]["secretName"]))
    for destination in first_config(cluster, items)["spec"]["destinations"]:
        wanted.add(("Secret", "kiln-system", destination["otlp"]["tls"]["caSecretRef"]["name"]))
    assert len(wanted) == 6 and wanted <= made, wanted - made


# ---- who reaches whom --------------------------------------------------------------------------------


def selects(selector, labels):
    for e in selector.get("matchExpressions", []):
        assert e["operator"] == "In", e
        if labels.get(e["key"]) not in e["values"]:
            return False
    return selector.get("matchLabels", {}).items() <= labels.items()


class Pod:
    def __init__(self, namespace, name, ports, extra=None):
        self.namespace, self.labels, self.ports = namespace, {"app.kubernetes.io/name": name, **(extra or {})}, ports


def matches(peer, policy, pod):
    if "ipBlock" in peer:
        return False
    space = {"kubernetes.io/metadata.name": pod.namespace}
    if "namespaceSelector" in peer:
        if not selects(peer["namespaceSelector"], space):
            return False
    elif pod.namespace != policy["metadata"]["namespace"]:
        return False
    return selects(peer.get("podSelector", {}), pod.labels)


def allowed(policies, direction, subject, other, port, protocol="TCP"):
    """Whether the NetworkPolicies admit the connection, as the API defines: without a policy for SUBJECT and the direction all
    is allowed, otherwise the union of the rules."""
    key, peers = {"in": ("ingress", "from"), "out": ("egress", "to")}[direction]
    concerned = [p for p in policies if p["metadata"]["namespace"] == subject.namespace
                 and selects(p["spec"]["podSelector"], subject.labels) and key.capitalize() in p["spec"]["policyTypes"]]
    named = (subject if direction == "in" else other).ports if other else {}
    for policy in concerned:
        for rule in policy["spec"].get(key, []):
            if rule.get(peers) and not (other and any(matches(p, policy, other) for p in rule[peers])):
                continue
            if not rule.get("ports") or any(named.get(p["port"], p["port"]) == port and p["protocol"] == protocol
                                            for p in rule["ports"]):
                return True
    return not concerned


AGENT = Pod("kiln-system", "kiln-agent", {"metrics": 13133}, {"profiling.kiln.dev/node-group": "default"})
OPERATOR = Pod("kiln-system", "kiln-operator", {"metrics": 8080, "health": 8081})
STREAM = Pod("kiln-system", "kiln-stream", {"metrics": 8080, "health": 8081, "stream": 8443})
GATEWAY = Pod("pyroscope", "gateway", {"otlp-grpc": 4317, "metrics": 8888, "health": 13133})
PYROSCOPE = Pod("pyroscope", "pyroscope", {"http": 4040})
GRAFANA = Pod("pyroscope", "grafana", {"http": 3000})
STRANGER = Pod("shop", "web", {"http": 80})
LOOKALIKE = Pod("shop", "kiln-agent", {})
API, WORLD = None, None  # peers that are no pods of the cluster

REACH = [
    ("the node stream", AGENT, STREAM, 8443, True),
    ("nothing of the controller for agents", AGENT, OPERATOR, 8443, False),
    ("what agents say", OPERATOR, STREAM, 8443, True),
    ("nothing the other way", STREAM, OPERATOR, 8443, False),
    ("the controller's metrics", STRANGER, OPERATOR, 8080, True),
    ("the stream's metrics", STRANGER, STREAM, 8080, True),
    ("no stream for others", STRANGER, STREAM, 8443, False),
    ("no stream for who is called so elsewhere", LOOKALIKE, STREAM, 8443, False),
    ("no stream for the gateway", GATEWAY, STREAM, 8443, False),
    ("profiles", AGENT, GATEWAY, 4317, True),
    ("profiles to the store", GATEWAY, PYROSCOPE, 4040, True),
    ("looking", GRAFANA, PYROSCOPE, 4040, True),
    ("nobody else sends", STRANGER, GATEWAY, 4317, False),
    ("nobody who is called so", LOOKALIKE, GATEWAY, 4317, False),
    ("nobody else reads", STRANGER, PYROSCOPE, 4040, False),
    ("nor past the gateway", AGENT, PYROSCOPE, 4040, False),
    ("Grafana asks nothing of the gateway", GRAFANA, GATEWAY, 4317, False),
    ("an agent's metrics", STRANGER, AGENT, 13133, True),
    ("nothing else of an agent", STRANGER, AGENT, 8443, False),
    ("agents do not talk to pods at will", AGENT, STRANGER, 80, False),
]


@pytest.fixture(scope="module")
def policies(cluster, installed, tmp_path_factory):
    """The NetworkPolicies of overlays production and pyroscope, and the one that the operator renders."""
    items = cluster.build(OVERLAYS / "production")
    made = render(cluster, items, tmp_path_factory.mktemp("render"))
    return kind(items, "NetworkPolicy") + kind(cluster.build(OVERLAYS / "pyroscope"), "NetworkPolicy") + \
        kind(made, "NetworkPolicy")


@pytest.mark.parametrize("what, source, target, port, want", REACH, ids=[r[0] for r in REACH])
def test_policies_let_through_what_is_needed(policies, what, source, target, port, want):
    assert (allowed(policies, "out", source, target, port) and allowed(policies, "in", target, source, port)) == want


@pytest.mark.parametrize("source, port, protocol, want", [
    (OPERATOR, 443, "TCP", True), (OPERATOR, 6443, "TCP", True), (OPERATOR, 53, "UDP", True),
    (OPERATOR, 80, "TCP", False), (STREAM, 443, "TCP", True), (STREAM, 6443, "TCP", True), (STREAM, 80, "TCP", False),
    (AGENT, 443, "TCP", True), (AGENT, 4317, "TCP", True), (AGENT, 53, "UDP", True), (AGENT, 80, "TCP", False),
    (GATEWAY, 53, "UDP", True), (GATEWAY, 443, "TCP", False), (GRAFANA, 443, "TCP", False),
    (PYROSCOPE, 443, "TCP", False)])
def test_policies_out_of_the_cluster(policies, source, port, protocol, want):
    """Egress to peers of unknown addresses: the API server, destinations and name servers."""
    assert allowed(policies, "out", source, None, port, protocol) == want


def test_the_policies_are_about_ports_that_exist(cluster):
    """Every named port in a policy is a port of its pods: an unknown name would silently block all."""
    for name in ("pyroscope", "production"):
        items = cluster.build(OVERLAYS / name)
        for policy in kind(items, "NetworkPolicy"):
            ports = {p["port"] for rule in policy["spec"].get("ingress", []) for p in rule.get("ports", [])
                     if isinstance(p["port"], str)}
            for _, namespace, template in templates(items):
                if namespace == policy["metadata"]["namespace"] and policy["spec"]["podSelector"] and \
                        selects(policy["spec"]["podSelector"], template["metadata"]["labels"]):
                    assert ports <= {p["name"] for c in template["spec"]["containers"] for p in c["ports"]}


# ---- production ------------------------------------------------------------------------------------


def test_production_is_bounded(cluster, installed, tmp_path):
    items = cluster.build(OVERLAYS / "production")
    classes = {i["metadata"]["name"]: i for i in kind(items, "PriorityClass")}
    assert all(c["preemptionPolicy"] == "Never" and 0 < c["value"] < 10**9 for c in classes.values())
    for name in ("kiln-operator", "kiln-stream"):
        operator, = kind(items, "Deployment", name)
        assert operator["spec"]["replicas"] == 2
        spec = operator["spec"]["template"]["spec"]
        assert spec["priorityClassName"] in classes
        spread, = spec["topologySpreadConstraints"]
        assert spread["whenUnsatisfiable"] == "DoNotSchedule"
        assert selects(spread["labelSelector"], operator["spec"]["template"]["metadata"]["labels"])
        limits, = (c["resources"]["limits"] for c in spec["containers"])
        assert {"cpu", "memory"} == set(limits)
    daemon, = kind(render(cluster, items, tmp_path), "DaemonSet")
    agent = daemon["spec"]["template"]["spec"]
    assert agent["priorityClassName"] in classes
    assert agent["containers"][0]["resources"]["limits"]["memory"] == "512Mi"
    assert daemon["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] == "10%"


def test_every_overlay_is_in_the_readme():
    text = (ROOT / "README.md").read_text()
    assert set(re.findall(r"^\| `([a-z]+)` \|", text[text.index("| overlay |"):], re.M)) == set(NAMES)
