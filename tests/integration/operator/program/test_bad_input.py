# SPDX-License-Identifier: Apache-2.0
"""Invalid answers of an API server against the whole operator: it stays alive and within its memory, counts the errors, logs
them once a minute for each kind, and recovers as soon as the server does.

A mode takes ten seconds and mostly waits, so some run concurrently, each with its own server and operator."""

import concurrent.futures
import functools
import json
import pathlib
import re
import struct
import time

import pytest

import fake_server
from conftest import NAMESPACE, OPERATOR, Operator, pod, wait_until
from fake_server import PROTOBUF, envelope, field, frame, proto_meta

MIB = 1 << 20
BAD_SECONDS = 4
SIDE_BY_SIDE = 6
# One kind for each type of store: sending megabytes for all ten kinds repeatedly would only measure the CPU.
STORES = {fake_server.PODS, "/api/v1/nodes", "/apis/profiling.kiln.dev/v1alpha1/profilingconfigs"}
SANITIZED = re.search(b"lib[at]san", pathlib.Path(OPERATOR).read_bytes())


# ---- modes: the answers of a bad server


def cut_json(r):
    r.begin()
    if r.is_watch:
        r.write(json.dumps({"type": "ADDED", "object": fake_server.pod("half")})[:80])
    else:
        r.write('{"kind": "PodList", "metadata": {"resourceVersion": "3"}, "items": [{"metadata": {"name": "ha')


def cut_protobuf(r):
    if r.is_watch:
        r.begin(PROTOBUF + ";stream=watch")
        r.write(frame("ADDED", envelope("v1", "Pod", field(1, proto_meta("half"))))[:40])
    else:
        r.begin(PROTOBUF)
        r.write(envelope("v1", "PodList", field(2, field(1, proto_meta("half"))))[:30])


def absurd_lengths(r):
    r.begin(PROTOBUF + (";stream=watch" if r.is_watch else ""))
    r.write(struct.pack(">I", 0xffffffff) if r.is_watch else b"k8s\0\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f")
    for _ in range(9):
        r.write(b"\xff" * MIB)


def inner_lengths(r):
    """Complete frames with objects whose length fields exceed their data."""
    bad = [field(1, b"\x0a\xff\xff\xff\xff\x0f"), b"\x0a\x05ab", field(1, field(1, b"x" * 300) + b"\xfa\xff"), b"\xff" * 9]
    if r.is_watch:
        r.begin(PROTOBUF + ";stream=watch")
        r.write(b"".join(frame("ADDED", envelope("v1", "Pod", raw)) for raw in bad * 50))
        r.hold()
    else:
        r.begin(PROTOBUF)
        r.write(envelope("v1", "PodList", field(1, field(2, "3")) + b"".join(field(2, raw) for raw in bad * 50)))


def unknown_types(r):
    if r.is_watch:
        r.begin()
        for event in ("EXPLODED", "", "added", "A" * 5000):
            r.write(json.dumps({"type": event, "object": fake_server.pod("x")}) + "\n")
    else:
        r.say(200, {"kind": "Surprise", "metadata": [], "items": {"a": 1}})


def one_of_each(mode):
    """Wraps MODE so that it applies to the kinds in STORES only; other kinds get good answers."""
    @functools.wraps(mode)
    def answer(r):
        return mode(r) if r.what in STORES else r.server.good(r)
    return answer


@one_of_each
def endless_object(r):
    r.begin()
    r.write('{"type": "ADDED", "object": {"metadata": {"name": "' if r.is_watch else
            '{"metadata": {"resourceVersion": "3"}, "items": [{"metadata": {"name": "')
    for _ in range(9):
        r.write(b"a" * MIB)


@functools.cache
def many_objects(is_watch):
    texts = (json.dumps(fake_server.pod(f"endless-{i}", resourceVersion="5", annotations={"a": "b" * 4000}))
             for i in range(1000))
    return "".join(f'{{"type": "ADDED", "object": {text}}}\n' if is_watch else text + "," for text in texts)


@one_of_each
def endless_list(r):
    """A thousand large objects with distinct names on every connection, which ends in the middle of an object."""
    r.begin()
    r.write("" if r.is_watch else '{"metadata": {"resourceVersion": "3"}, "items": [')
    r.write(many_objects(r.is_watch))
    r.write('{"type": "ADDED", "object": {' if r.is_watch else "{")


def deep_nesting(r):
    r.begin()
    r.write('{"type": "ADDED", "object": {"metadata": ' if r.is_watch else '{"items": [{"metadata": ')
    r.write(b'{"a":' * 500000)


def another_type(r):
    r.begin("text/html")
    r.write("<html><body>Sign in to the hotel's network</body></html>" * 100)


def no_http(r):
    r.close_connection = True
    r.write(b"SSH-2.0-OpenSSH_9.2\r\n" + b"\0" * 4096)


def large_error(r):
    r.begin(status=500)
    for _ in range(8):
        r.write(b'{"message": "' + b"e" * MIB)


def hostile_names(r):
    """Valid JSON with objects that no API server would accept: bad names, huge metadata, wrong types."""
    names = ["../../etc", "a/b", "", "a\0b", "\u202e", "x" * 100000, "\n", "%s%n", "A B"]
    items = [fake_server.pod(name, resourceVersion="5") for name in names] + [
        fake_server.pod("large", resourceVersion="5", annotations={"a": "x" * MIB}, labels={f"k{i}": "v" * 63 for i in range(5000)}),
        fake_server.pod("odd", resourceVersion="5", labels={"": "", "\0": "\0"}, ownerReferences=[{}] * 1000, uid="u" * 70000),
        {"metadata": {"name": 7, "labels": [1]}}, [], 5, None, "pod"]
    if r.what != fake_server.PODS:
        items = items[:9] + items[11:]
    if r.is_watch:
        r.begin()
        for event in ("ADDED", "MODIFIED", "DELETED"):
            for item in items:
                r.write(json.dumps({"type": event, "object": item}) + "\n")
        r.hold()
    else:
        r.say(200, {"metadata": {"resourceVersion": "3"}, "items": items})


MODES = [cut_json, cut_protobuf, absurd_lengths, inner_lengths, unknown_types, deep_nesting, another_type, hostile_names,
         endless_object, endless_list, no_http, large_error]


# ---- the operator under these answers


def against(server, directory):
    path = directory / "fake.kubeconfig"
    path.write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "x", "users": [{"name": "x", "user": {}}],
        "clusters": [{"name": "x", "cluster": {"server": server.url}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x", "namespace": NAMESPACE}}]}))
    return Operator(str(path), directory, "bad-input", "--leader-elect=false")


def memory(operator, key):
    with open(f"/proc/{operator.process.pid}/status", encoding="utf-8") as f:
        return int(re.search(rf"{key}:\s+(\d+) kB", f.read())[1]) << 10


def complaints(operator):
    return sum(operator.metric(f"kiln_informer_{name}_total") for name in ("errors", "undecodable", "too_large")) + \
        operator.metric("kiln_cache_dropped_total")


def survive(operator, what, before=0):
    """The operator stays alive and answers for BAD_SECONDS, and counts more errors than BEFORE."""
    end = time.monotonic() + BAD_SECONDS
    while time.monotonic() < end:
        assert operator.process.poll() is None, f"{what}: {operator.log[-3000:]}"
        # On a busy machine the answer may be late, but must come.
        wait_until(f"health {what}", lambda: operator._get(operator.health, "/healthz")[0] == 200)
        time.sleep(0.2)
    wait_until("a complaint", lambda: complaints(operator) > before)


def check_log(operator, seconds):
    """The log has, for each kind, at most one line a minute about HTTP errors, other errors and bad objects each."""
    lines = re.findall(r"^\S+ warn informer: (\w+): (an object|[\w ]+: HTTP [45])?", operator.log, re.M)
    most = max((lines.count(line) for line in set(lines)), default=0)
    assert lines and most <= 1 + seconds / 60, (most, operator.log[-5000:])
    assert len(operator.log) < 64 << 10
    return most


def nonsense(mode, directory):
    """Runs an operator with the answers of MODE at its start and again later; a summary line."""
    server = fake_server.Server()
    server.mode, started = mode, time.monotonic()
    operator = against(server, directory)
    try:
        wait_until("an answer", lambda: operator._get(operator.health, "/healthz")[0] == 200)
        survive(operator, "from the beginning")
        server.mode = server.good
        server.cut()
        well = time.monotonic()
        wait_until("readiness", operator.ready)
        first = time.monotonic() - well
        wait_until("the pods that are there", lambda: operator.metric("kiln_pods") == 3)
        server.mode, before = mode, complaints(operator)
        server.cut()
        survive(operator, "in the middle", before)
        server.mode, server.pods = server.good, 5
        server.cut()
        well = time.monotonic()
        wait_until("the pods that are there now", lambda: operator.metric("kiln_pods") == 5)
        assert operator.ready()
        peak = memory(operator, "VmHWM")
        most = check_log(operator, time.monotonic() - started)
        assert SANITIZED or peak < 256 * MIB
        assert operator.stop() == 0
        return (f"{mode.__name__}: {server.requests} requests, peak {peak / MIB:.0f} MiB, well again after {first:.1f} s "
                f"and {time.monotonic() - well:.1f} s, at most {most} lines of a kind")
    finally:
        if operator.process.poll() is None:
            operator.process.kill()
            operator.process.wait()
        server.shutdown()
        server.cut()
        server.server_close()
        assert "Sanitizer" not in operator.log and "runtime error" not in operator.log, operator.log[-5000:]


@pytest.fixture(scope="module")
def runs(request, tmp_path_factory):
    """{mode: future} of the selected modes, which run concurrently."""
    modes = [item.callspec.params["mode"] for item in request.session.items
             if item.function is test_nonsense_from_the_server]
    with concurrent.futures.ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        yield {mode: pool.submit(nonsense, mode, tmp_path_factory.mktemp(mode.__name__)) for mode in modes}


@pytest.mark.parametrize("mode", MODES, ids=lambda m: m.__name__)
def test_nonsense_from_the_server(runs, mode):
    print(runs[mode].result())


# ---- a real API server


def test_what_tenants_can_write(cluster, operator):
    """Objects that are as large and unusual as the API server accepts."""
    cluster.kubectl("create", "namespace", "n" * 63)
    before = operator.metric("kiln_pods")
    large = {"a": "x" * 250000}
    odd = {f"k{i:062d}": "v" * 63 for i in range(1000)}
    cluster.apply([pod("n" * 63, "p" * 63, "node", annotations=large),
                   pod("n" * 63, "many", "node", labels=odd, annotations={"profiling.kiln.dev/mode": "x" * 200000}),
                   pod("n" * 63, "a.b-c.d", "node", {"app": ""})])
    wait_until("three pods", lambda: operator.metric("kiln_pods") == before + 3)
    assert operator.metric("kiln_cache_dropped_total", cache="pods") > 0
    # A ConfigMap of the largest size with the operator's label is read like any other, and deleted as superfluous.
    cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "x" * (MIB - 10)},
                   "metadata": {"name": "large", "namespace": NAMESPACE,
                                "labels": {"app.kubernetes.io/managed-by": "kiln-operator"}}})
    wait_until("its deletion", lambda: cluster.object("configmap", "large", NAMESPACE) is None)
    assert operator.metric("kiln_cache_dropped_total", cache="rendered") == 0
    cluster.apply({"apiVersion": "profiling.kiln.dev/v1alpha1", "kind": "ProfilingConfig",
                   "metadata": {"name": "odd", "namespace": "n" * 63, "annotations": large},
                   "spec": {"podSelector": {"matchLabels": {"app": ""}}}})
    wait_until("its pod", lambda: (cluster.object("pcfg", "odd", "n" * 63) or {}).get("status", {}).get("matchedPods") == 1)
    assert operator.ready()
    cluster.kubectl("delete", "pods", "--all", "-n", "n" * 63, "--force", "--grace-period=0")
    wait_until("no such pods", lambda: operator.metric("kiln_pods") == before)
