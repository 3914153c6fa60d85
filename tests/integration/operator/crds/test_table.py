# SPDX-License-Identifier: Apache-2.0
"""Every row of the tables, as the API server sees it."""

import itertools

import pytest

import table
import table_operator
from conftest import GROUP, thing

NAMES = {table.CLUSTER: "cluster", table.TENANT: "config", table.NODE: "node"}


def row(title, kind, spec, errors, name=None):
    made = thing(kind, name or NAMES[kind], spec)
    if spec is None:
        del made["spec"]
    return pytest.param(made, errors, id=title)


ROWS = [row(*entry) for entry in table.ROWS]
VALID = [p for p in ROWS if not p.values[1]]
INVALID = [p for p in ROWS if p.values[1]]


def test_the_table_is_large():
    assert len(ROWS) >= 60 and len(VALID) >= 20 and len(INVALID) >= 40
    assert len({p.id for p in ROWS}) == len(ROWS)


@pytest.mark.parametrize("made, errors", VALID)
def test_valid_is_kept_as_it_was_sent(client, made, errors):
    answer = client.create(made)
    try:
        assert answer.status == 201, answer.message
        assert answer.body["spec"] == made["spec"]
    finally:
        client.delete(made)


@pytest.mark.parametrize("made, errors", INVALID)
def test_invalid_is_refused_with_the_cause(client, made, errors):
    answer = client.create(made, dryRun="All")
    assert answer.status in (400, 422), answer.body
    if answer.status == 400:  # an unknown field is found before anything is validated
        assert (answer.message,) == errors
        return
    prefix = f'{made["kind"]}.{GROUP} "{made["metadata"]["name"]}" is invalid: '
    wanted = errors if len(errors) == 1 else [f"[{', '.join(some)}]" for some in itertools.permutations(errors)]
    assert answer.message in [prefix + want for want in wanted]


@pytest.mark.parametrize("objects", [pytest.param(entry[1], id=entry[0]) for entry in table_operator.ROWS])
def test_what_the_operator_refuses_is_none_of_the_servers_business(client, objects):
    for made in objects:
        answer = client.create(made, dryRun="All")
        assert answer.status == 201, answer.message


def test_refused_changes(client):
    """Updates that the server rejects by comparison with the old object."""
    node = thing("ProfilingNode", "moving", {"nodeName": "moving"})
    assert client.create(node).status == 201
    try:
        answer = client.patch(node, {"spec": {"nodeName": "moved"}})
        assert answer.status == 422
        assert answer.message == (
            f'ProfilingNode.{GROUP} "moving" is invalid: [spec.nodeName: Invalid value: want the object\'s name, '
            '"moving", got "moved", spec.nodeName: Invalid value: "moved": want "moving" unchanged, got "moved"]')
        assert client.patch(node, {"metadata": {"labels": {"a": "b"}}}).status == 200
    finally:
        client.delete(node)


def test_status_is_written_apart(client):
    """A write of the spec does not change the status, and a write of the status does not change the spec."""
    config = thing("ProfilingConfig", "apart", {"profile": {"sampling": {"hz": 5}}})
    made = client.create({**config, "status": {"matchedPods": 3}})
    try:
        assert made.status == 201 and "status" not in made.body
        done = client.patch(config, {"spec": {"profile": {"sampling": {"hz": 7}}}, "status": {"matchedPods": 4}},
                            status=True)
        assert done.status == 200
        assert done.body["status"] == {"matchedPods": 4} and done.body["spec"] == config["spec"]
        assert done.body["metadata"]["generation"] == 1
        done = client.patch(config, {"spec": {"profile": {"sampling": {"hz": 7}}}, "status": {"matchedPods": 5}})
        assert done.body["status"] == {"matchedPods": 4} and done.body["metadata"]["generation"] == 2
        bad = client.patch(config, {"status": {"clamped": [{"field": "sampling.hz"}] * 17}}, status=True)
        assert bad.status == 422 and "status.clamped: Too many: 17: must have at most 16 items" in bad.message
    finally:
        client.delete(config)


def test_status_of_every_kind(client):
    """A status in which every field is set is stored as it was sent."""
    condition = {"type": "Ready", "status": "Unknown", "observedGeneration": 3, "reason": "Starting",
                 "lastTransitionTime": "2026-01-02T03:04:05Z", "message": "no agent has reported yet"}
    nodes = {"desired": 3, "programmed": 2, "degraded": 1}
    clamped = [{"field": "sampling.hz", "requested": "499", "effective": "97", "reason": "guardrails.sampling.maxHz"}]
    every = {
        table.CLUSTER: {"observedGeneration": 3, "configHash": "0" * 16, "matchedPods": 12, "nodes": nodes,
                        "clamped": clamped, "conditions": [condition]},
        table.TENANT: {"observedGeneration": 3, "effectiveHash": "0" * 16, "matchedPods": 12, "nodes": nodes,
                       "clamped": clamped, "conditions": [condition, {**condition, "type": "Overridden"}]},
        table.NODE: {"agentVersion": "0.1.0", "kernel": "6.1.0-56-cloud-amd64", "cgroupMode": "hybrid",
                     "runtime": "containerd", "configHash": "0" * 16, "samples": 2**53 - 1, "dropped": 0,
                     "truncated": 1, "lastReportTime": "2026-01-02T03:04:05.123456Z", "conditions": [condition],
                     "tracers": [{"name": "jvm", "state": "Unavailable", "reason": "no BTF"},
                                 {"name": "go", "state": "Loaded"}]},
    }
    for kind, status in every.items():
        made = thing(kind, NAMES[kind], {"nodeName": "node"} if kind == table.NODE else {})
        assert client.create(made).status == 201
        try:
            answer = client.patch(made, {"status": status}, status=True)
            assert answer.status == 200, answer.message
            assert answer.body["status"] == status
        finally:
            client.delete(made)


def test_lists_merge_by_name(cluster, client):
    """Two field managers own one destination each: server-side apply merges the list by name (listType: map)."""
    made = thing("ClusterProfilingConfig", "cluster", {})
    try:
        for manager in ("a", "b"):
            cluster.apply({**made, "spec": {"destinations": [table.otlp(name=manager)],
                                            "guardrails": {"deniedTracers": ["go" if manager == "a" else "v8"]}}},
                          "--field-manager", manager)
        spec = cluster.get("cpc", "cluster")["spec"]
        assert [d["name"] for d in spec["destinations"]] == ["a", "b"]
        assert spec["guardrails"]["deniedTracers"] == ["go", "v8"]
    finally:
        client.delete(made)


def test_kubectl_shows_the_same_text(cluster):
    done = cluster.apply(thing("ProfilingConfig", "fast", {"profile": {"sampling": {"hz": 5000}}}), "--dry-run=server",
                         check=False)
    assert done.returncode == 1
    assert done.stderr == ('The ProfilingConfig "fast" is invalid: spec.profile.sampling.hz: Invalid value: 5000: '
                           "spec.profile.sampling.hz in body should be less than or equal to 1000\n")
    done = cluster.apply(thing("ProfilingConfig", "slow", {"profile": {"sampling": {"hz": 5}}}), "--dry-run=server",
                         check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"profilingconfig.{GROUP}/slow serverside-applied (server dry run)\n"
    assert cluster.get("pcfg", "-A")["items"] == []  # nothing was stored
