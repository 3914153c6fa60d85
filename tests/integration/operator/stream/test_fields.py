# SPDX-License-Identifier: Apache-2.0
"""Every accepted field has an effect, or a condition says that it has none: each field of both CRDs is changed on a real API
server, and the effect is checked on its way to a node (fields.py)."""

import base64
import json

import fields
import pytest
import yaml
from conftest import NAMESPACE, program
from test_destinations import allow
from test_stream import live, make_pod, nodes  # noqa: F401

OURS = "/apis/profiling.kiln.dev/v1alpha1"
PATHS = {"daemonset": f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets",
         "networkpolicy": f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/networkpolicies",
         "configmap": f"/api/v1/namespaces/{NAMESPACE}/configmaps", "service": f"/api/v1/namespaces/{NAMESPACE}/services",
         "cpc": f"{OURS}/clusterprofilingconfigs", "pcfg": f"{OURS}/namespaces/shop/profilingconfigs"}
SPEC = ("spec", "versions", 0, "schema", "openAPIV3Schema", "properties", "spec")


def leaves(schema, path):
    """The paths of all leaf fields of SCHEMA: a[].b in lists of objects, a[] for other lists, a{} for maps."""
    if "properties" in schema:
        for name, part in schema["properties"].items():
            yield from leaves(part, f"{path}.{name}")
        if not schema["properties"]:
            yield path
    elif schema.get("type") == "array":
        yield from leaves(schema["items"], f"{path}[]")
    elif "additionalProperties" in schema:
        yield f"{path}{{}}"
    else:
        yield path


def fields_of(kind):
    part = yaml.safe_load((program.ROOT / f"crds/{kind}.yaml").read_text(encoding="utf-8"))
    for key in SPEC:
        part = part[key]
    return sorted(leaves(part, "spec"))


def test_every_field_has_a_row():
    """Every field of the CRDs has a row in fields.py."""
    cluster = [row[0] for rows in (fields.cluster_rows(), fields.rail_rows()) for row in rows]
    tenant = [row[0] for row in fields.tenant_rows()]
    assert sorted(cluster) == fields_of("clusterprofilingconfigs")
    assert sorted(tenant) == fields_of("profilingconfigs")


def merged(base, change):
    """CHANGE merged into BASE: maps by key; two lists of one map each by merging these maps; else CHANGE."""
    if isinstance(base, dict) and isinstance(change, dict):
        return {**base, **{k: merged(base.get(k), v) for k, v in change.items()}}
    if is_one(base) and is_one(change):
        return [merged(base[0], change[0])]
    return change


def is_one(value):
    return isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict)


def places(spec, at=()):
    """{path: value} of all values that SPEC sets."""
    if is_one(spec):
        return places(spec[0], at)
    if not isinstance(spec, dict):
        return {at: spec}
    return {path: value for key, part in spec.items() for path, value in places(part, (*at, key)).items()}


def groups(rows):
    """ROWS in groups that do not affect each other and can be checked at once, since each step takes the operator a while."""
    found = []
    for row in rows:
        base, change = places(row[1]), {k: v for k, v in places(row[2]).items() if places(row[1]).get(k) != v}
        alone = row[0].split(".")[1] not in ("agent", "nodeGroups[]", "destinations[]") or row[0].endswith("].text")
        for group in found:
            if not alone and group["may"] and row[0].split(".")[1] == group["part"] and \
                    all(group["base"].get(k, v) == v for k, v in base.items()) and \
                    not set(change) & (set(group["change"]) | set(group["base"])) and not set(base) & set(group["change"]):
                break
        else:
            group = {"base": {}, "change": {}, "rows": [], "may": not alone, "part": row[0].split(".")[1]}
            found.append(group)
        group["base"].update(base)
        group["change"].update(change)
        group["rows"].append(row)
    return [group["rows"] for group in found]


class World:
    """The state that checks read: what the agent was told, and the objects in the cluster."""

    def __init__(self, cluster, agent, sizes):
        self.cluster, self.agent, self.sizes = cluster, agent, sizes

    def _drain(self):
        while not self.agent.lines.empty():
            self.agent._take(*self.agent.lines.get())
        assert self.agent.closed is None, self.agent.closed

    def pod(self, name):
        self._drain()
        pod, = (p for p in self.agent.pods.values() if p["name"] == name)
        return pod

    def policy(self, name):
        return self.agent.policies[self.pod(name)["policy"]]

    def budget(self):
        self._drain()
        return self.agent.budget

    def destinations(self):
        self._drain()
        return self.agent.destinations

    def object(self, kind, name):
        """The object, or None when it does not exist. By HTTP, since it is called hundreds of times."""
        try:
            return json.loads(self.cluster.request(f"{PATHS[kind]}/{name}"))
        except program.urllib.error.HTTPError as e:
            if e.code != 404:
                raise
            return None

    def put(self, kind, name, spec):
        """Creates the config, or replaces its whole spec."""
        made = program.thing({"cpc": "ClusterProfilingConfig", "pcfg": "ProfilingConfig"}[kind], name, spec, "shop")
        live = self.object(kind, name)
        if not live:
            self.cluster.request(PATHS[kind], "POST", made)
            return
        made["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"]
        try:
            self.cluster.request(f"{PATHS[kind]}/{name}", "PUT", made)
        except program.urllib.error.HTTPError as e:
            if e.code != 409:
                raise
            self.put(kind, name, spec)  # the operator has just written its status

    def delete(self, name):
        self.cluster.request(f"{PATHS['pcfg']}/{name}", "DELETE")

    def daemonset(self, name="kiln-agent"):
        return self.object("daemonset", name)

    def config(self, name="kiln-agent"):
        return yaml.safe_load(self.object("configmap", name)["data"]["agent.yaml"])

    def condition(self, kind, name, condition):
        """(status, reason, message) of a condition; None until it has been written for the current generation."""
        live = self.object(kind, name)
        return next(((c["status"], c["reason"], c["message"]) for c in live.get("status", {}).get("conditions", []) if
                     c["type"] == condition and c["observedGeneration"] == live["metadata"]["generation"]), None)


def holds(world, check):
    """The result of CHECK; False when it raises because something does not exist yet."""
    try:
        return bool(check(world))
    except (TypeError, KeyError, IndexError, ValueError):
        return False


@pytest.fixture
def world(cluster, nodes, serve, connect, token, certificate):  # noqa: F811
    """A World with an operator, a connected agent, the pods "till" and "shy", and the Secrets of the namespace."""
    cluster.kubectl("label", "node", "n1", "pool=g", "--overwrite")
    cluster.kubectl("label", "namespace", "shop", "cost=9", "--overwrite")
    cluster.kubectl("annotate", "namespace", "shop", "floor=2", "--overwrite")
    make_pod(cluster, "shop", "till", "n1", labels={"app.kubernetes.io/name": "counter", "team": "fruit"})
    cluster.kubectl("annotate", "pod", "till", "-n", "shop", "note=ripe", "resource.opentelemetry.io/service.version=7")
    cluster.apply(program.pod("shop", "shy", "n1", annotations={"profiling.kiln.dev/mode": "disabled"}))
    ca, crt, key = (path.read_text(encoding="utf-8") for path in certificate)
    data = {"one": {"k": ca, "other": ca * 2}, "two": {"k": ca * 3, "other": ca}, "pair": {"tls.crt": crt, "tls.key": key},
            "words": {"k": "words-k", "l": "words-l"}, "others": {"k": "others-k"}}
    for name, values in data.items():
        cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "shop"},
                       "data": {k: base64.b64encode(v.encode()).decode() for k, v in values.items()}})
    allow(cluster, "shop")
    _, port = serve()
    before = program.wait_until("the first config", lambda: cluster.object("cpc", "cluster"))["spec"]
    agent = connect(port, token("agent-n1"))
    agent.until("a snapshot", live)
    agent.until("the pods", lambda a: {"till", "shy"} <= set(a.names()))
    yield World(cluster, agent, {(name, k): len(v) for name, values in data.items() for k, v in values.items()})
    cluster.kubectl("delete", "pcfg", "--all", "-n", "shop")
    cluster.reset(before)
    # Other tests count pods and expect that Secrets cannot be read.
    cluster.kubectl("delete", "pod", "till", "shy", "-n", "shop", "--grace-period=0", "--force")
    cluster.kubectl("delete", "secret", *data, "-n", "shop")
    cluster.kubectl("delete", "rolebinding", "kiln-operator-secrets", "-n", "shop")
    cluster.kubectl("label", "node", "n1", "pool-")
    cluster.kubectl("label", "namespace", "shop", "cost-")
    cluster.kubectl("annotate", "namespace", "shop", "floor-")


def prove(world, rows, put):
    """Checks ROWS together: base, change, base again. Messages about failures. PUT(spec) sets the spec of the config."""
    base, change = {}, {}
    for row in rows:
        base, change = merged(base, row[1]), merged(change, row[2])
    steps = (("the check holds without the change", base, False), ("nothing comes of it", merged(base, change), True),
             ("what came of it stays", base, False))
    for wrong, spec, wanted in steps:
        left = list(rows)

        def done():
            left[:] = [row for row in left if holds(world, row[3]) != wanted]  # noqa: B023
            return not left  # noqa: B023

        try:
            put(spec)
            program.wait_until(wrong, done, timeout=20)
        except program.urllib.error.HTTPError as e:
            return [f"{', '.join(row[0] for row in rows)}: the server refuses it: {e.read().decode()}"]
        except TimeoutError:
            return [f"{row[0]}: {wrong}" for row in left]
    return []


def test_each_field_of_the_clusters_config(world):
    def put(spec):
        world.put("cpc", "cluster", {"destinations": [fields.TEXT], **spec})

    wrong = []
    for rows in groups(fields.cluster_rows()):
        wrong += prove(world, rows, put)
    for field, tenant, base, change, check in fields.rail_rows():
        world.put("pcfg", "own", tenant)
        wrong += prove(world, [(field, base, change, check)], put)
        world.delete("own")
    assert wrong == [], "\n".join(wrong)


def test_each_field_of_a_namespaces_config(world):
    def put(spec):
        world.put("pcfg", "own", spec)

    wrong = []
    for field, rails, base, change, check in fields.tenant_rows():
        world.put("cpc", "cluster", {"destinations": [fields.TEXT], **rails})
        if field == "spec.priority":
            world.put("pcfg", "another", {"podSelector": {"matchLabels": {"team": "fruit"}}, "priority": 2,
                                          "profile": {"sampling": {"hz": 23}}})
        wrong += prove(world, [(field, base, change, check)], put)
        world.delete("own")
        if field == "spec.priority":
            world.delete("another")
    assert wrong == [], "\n".join(wrong)
