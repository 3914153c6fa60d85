# SPDX-License-Identifier: Apache-2.0
"""Rules that every field of every kind must meet, and the output of kubectl for the kinds."""

import re

import pytest

from conftest import API, GROUP, PLURAL, ROOT, thing

CAPS = {"string": ("maxLength", "enum"), "integer": ("maximum",), "array": ("maxItems",)}


def schemas(cluster):
    for plural in PLURAL.values():
        crd = cluster.get("crd", f"{plural}.{GROUP}")
        version, = crd["spec"]["versions"]
        yield crd, version["schema"]["openAPIV3Schema"]


def walk(schema, path=""):
    """(path, schema) of every field, list element and map value."""
    yield path, schema
    for name, field in schema.get("properties", {}).items():
        yield from walk(field, f"{path}.{name}")
    if "items" in schema:
        yield from walk(schema["items"], path + "[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from walk(schema["additionalProperties"], path + "{}")


# Required fields, outside of lists and maps.
REQUIRED = {".spec.nodeName"}


def problems(path, field):
    """The messages about rules that the schema FIELD at PATH breaks."""
    if path == ".metadata":  # the server allows only names here and has its own description
        return
    text = field.get("description", "")
    if len(text) < 9 or not text.endswith(".") or len(text) > 400:
        yield f"description {text!r}"
    if "default" in field:
        yield "a default hides that the field is absent"
    if field.get("x-kubernetes-preserve-unknown-fields") or field.get("x-kubernetes-embedded-resource"):
        yield "takes anything"
    kind = "string" if field.get("x-kubernetes-int-or-string") else field.get("type")
    if kind not in ("string", "integer", "array", "object"):
        yield f"type {kind}"
    if not any(cap in field for cap in CAPS.get(kind, ())) and kind != "object":
        yield "no upper bound"
    if kind == "integer" and ("minimum" not in field or "format" not in field):
        yield "no lower bound or no format"
    if kind == "array" and "x-kubernetes-list-type" not in field:
        yield "no list type"
    if kind == "object" and "properties" not in field and "maxProperties" not in field:
        yield "no bound on the map"
    optional = path.startswith(".spec") and path not in REQUIRED and not re.search(r"\[\]|\{\}", path)
    if optional and (kind != "object" or "maxProperties" in field) and "Absent" not in text:
        yield f"does not say what absent means: {text!r}"


def test_every_field_is_described_and_bounded(cluster):
    found = [f"{crd['spec']['names']['kind']}{path}: {problem}" for crd, schema in schemas(cluster)
             for path, field in walk(schema) for problem in problems(path, field)]
    assert found == []


def test_the_server_has_no_complaint(cluster):
    for crd, schema in schemas(cluster):
        conditions = {c["type"]: c["status"] for c in crd["status"]["conditions"]}
        assert conditions == {"Established": "True", "NamesAccepted": "True"}
        assert crd["spec"]["conversion"] == {"strategy": "None"}
        assert schema["type"] == "object"


def without_description(schema):
    return {key: value for key, value in schema.items() if key != "description"}


def test_what_both_configs_have_is_the_same(cluster):
    """A YAML anchor does not reach into another file, so the two kinds repeat these schemas: they must be equal."""
    one, two, node = (schema["properties"] for _, schema in schemas(cluster))
    ours, theirs = one["spec"]["properties"], two["spec"]["properties"]
    assert ours["defaults"]["properties"] == theirs["profile"]["properties"]
    ours_to, theirs_to = (s["destinations"]["items"]["properties"] for s in (ours, theirs))
    assert ours_to["otlp"] == theirs_to["otlp"] and ours_to["name"] == theirs_to["name"]
    assert (without_description(ours["guardrails"]["properties"]["namespaceSelector"]) ==
            without_description(theirs["podSelector"]))
    status, theirs_status, of_node = (s["status"]["properties"] for s in (one, two, node))
    assert status["conditions"]["items"] == theirs_status["conditions"]["items"] == of_node["conditions"]["items"]
    assert status["clamped"]["items"] == theirs_status["clamped"]["items"]
    agent, group = (s["properties"] for s in (ours["agent"], ours["nodeGroups"]["items"]["properties"]["agent"]))
    assert {**group, "nodeSelector": agent["nodeSelector"]} == agent
    assert "nodeSelector" not in group


def test_applied_twice_changes_nothing(cluster):
    def versions():
        kinds = "crd,validatingadmissionpolicy,validatingadmissionpolicybinding"
        items = cluster.get(kinds)["items"]
        return {(i["kind"], i["metadata"]["name"]): (i["metadata"]["generation"], i["metadata"]["resourceVersion"])
                for i in items if "kiln" in i["metadata"]["name"]}

    before = versions()
    assert len(before) == 9
    cluster.kubectl("apply", "--server-side", "-k", str(ROOT / "crds"))
    assert versions() == before


def test_explain_describes_every_field(cluster):
    """`kubectl explain` shows for every struct its description, and each field with its description."""
    structs = [(crd["spec"]["names"]["plural"], path, field) for crd, schema in schemas(cluster)
               for path, field in walk(schema) if "properties" in field]
    assert len(structs) > 50
    for plural, path, field in structs:
        text = cluster.kubectl("explain", "--api-version", API, plural + re.sub(r"\[\]|\{\}", "", path))
        plain = " ".join(text.split())
        assert "<no description>" not in text and "<empty>" not in text
        assert " ".join(field["description"].split()) in plain, path
        for name, below in field["properties"].items():
            assert re.search(rf"^  {name}\t<", text, re.M), (path, name)
            if path or name not in ("apiVersion", "kind", "metadata"):  # for these the server shows its own texts
                assert " ".join(below["description"].split()) in plain, (path, name)


def test_explain_reads_well(cluster):
    text = cluster.kubectl("explain", "pcfg.spec.profile.sampling.hz", "--api-version", API)
    assert " ".join(text.split()) == (
        "GROUP: profiling.kiln.dev KIND: ProfilingConfig VERSION: v1alpha1 FIELD: hz <integer> DESCRIPTION: "
        "Samples per second and CPU (Hz), 1 to 1000. A number that is no divisor of 100, such as 19 or 97, avoids "
        "beating with periodic work. Absent: inherited, in the end 20.")


def table(cluster, *arguments):
    """kubectl's table as a list of {column: cell}."""
    lines = cluster.kubectl("get", *arguments).splitlines()
    starts = [m.start() for m in re.finditer(r"(?<!\S)\S", lines[0])]
    cut = [slice(a, b) for a, b in zip(starts, starts[1:] + [None])]
    return [{lines[0][c].strip(): line[c].strip() for c in cut} for line in lines[1:]]


@pytest.fixture()
def objects(cluster, client):
    def condition(type_, status="True", reason="AsAsked"):
        return {"type": type_, "status": status, "reason": reason, "message": "", "observedGeneration": 1,
                "lastTransitionTime": "2026-01-02T03:04:05Z"}

    made = [
        (thing("ClusterProfilingConfig", "cluster", {"defaults": {"sampling": {"hz": 19}, "mode": "OptIn"}}),
         {"matchedPods": 7, "nodes": {"desired": 3, "programmed": 2}, "configHash": "c0ffee",
          "conditions": [condition("Accepted"), condition("Ready", "False", "Rolling")]}),
        (thing("ProfilingConfig", "api", {"podSelector": {}, "priority": 9, "profile": {
            "sampling": {"hz": 49}, "mode": "Enabled", "offCPU": {"mode": "Disabled"}}}),
         {"matchedPods": 5, "nodes": {"programmed": 4}, "conditions": [condition("Accepted"), condition("Ready")]}),
        (thing("ProfilingConfig", "bare", {}), None),
        *((thing("ProfilingNode", f"n{i}", {"nodeName": f"n{i}"}),
           {"agentVersion": "0.1.0", "kernel": "6.1.0", "cgroupMode": "v2", "configHash": "c0ffee",
            "conditions": [condition("Ready", "False", "TracersMissing")]}) for i in (1, 2, 3)),
    ]
    try:
        for item, status in made:
            assert client.create(item).status == 201
            if status:
                assert client.patch(item, {"status": status}, status=True).status == 200
        yield
    finally:
        for item, _ in made:
            client.delete(item)


def aged(rows):
    """Checks and removes the column AGE, so that the rest can be compared."""
    for line in rows:
        assert re.fullmatch(r"\d+s|\dm\d*s?", line.pop("AGE"))
    return rows


def test_columns(objects, cluster):
    config = {"NAME": "cluster", "HZ": "19", "MODE": "OptIn", "PODS": "7", "NODES": "3", "PROGRAMMED": "2",
              "ACCEPTED": "True", "READY": "False"}
    assert aged(table(cluster, "cpc")) == [config]
    assert aged(table(cluster, "cpc", "-o", "wide")) == [{**config, "HASH": "c0ffee"}]
    api = {"NAME": "api", "HZ": "49", "MODE": "Enabled", "PODS": "5", "PROGRAMMED": "4", "ACCEPTED": "True",
           "READY": "True"}
    bare = dict.fromkeys(api, "") | {"NAME": "bare"}
    assert aged(table(cluster, "pcfg")) == [api, bare]
    assert aged(table(cluster, "pcfg", "-o", "wide")) == [
        {**api, "PRIORITY": "9", "OFFCPU": "Disabled"}, {**bare, "PRIORITY": "", "OFFCPU": ""}]
    node = {"AGENT": "0.1.0", "KERNEL": "6.1.0", "CGROUP": "v2", "READY": "False", "REASON": "TracersMissing"}
    assert aged(table(cluster, "pn")) == [{"NAME": f"n{i}", **node} for i in (1, 2, 3)]
    assert table(cluster, "pn", "-o", "wide")[0]["HASH"] == "c0ffee"


def test_names(objects, cluster):
    """The category has all kinds; plural, singular and short names give the same objects."""
    names = cluster.kubectl("get", "kiln", "-A", "-o", "name").split()
    assert names == [f"clusterprofilingconfig.{GROUP}/cluster",
                     f"profilingconfig.{GROUP}/api", f"profilingconfig.{GROUP}/bare",
                     *(f"profilingnode.{GROUP}/n{i}" for i in (1, 2, 3))]
    for kind, plural in PLURAL.items():
        short = {"clusterprofilingconfigs": "cpc", "profilingconfigs": "pcfg", "profilingnodes": "pn"}[plural]
        want = cluster.kubectl("get", f"{plural}.{GROUP}", "-o", "name")
        assert want
        for name in (short, plural[:-1], kind):
            assert cluster.kubectl("get", name, "-o", "name") == want


def test_nodes_are_selected_by_name(objects, cluster):
    def selected(selector):
        return cluster.kubectl("get", "pn", "-o", "name", "--field-selector", selector).split()

    assert selected("spec.nodeName=n2") == [f"profilingnode.{GROUP}/n2"]
    assert selected("spec.nodeName!=n2") == [f"profilingnode.{GROUP}/n1", f"profilingnode.{GROUP}/n3"]
    done = cluster.kubectl("get", "pn", "--field-selector", "status.kernel=6.1.0", check=False)
    assert done.returncode == 1 and "field label not supported" in done.stderr


def test_describe_shows_spec_and_conditions(objects, cluster):
    text = cluster.kubectl("describe", "pcfg", "api")
    for line in (r"Priority: +9", r"Hz: +49", r"Reason: +AsAsked", r"Matched Pods: +5"):
        assert re.search(line, text), line
