# SPDX-License-Identifier: Apache-2.0
"""The samples of each policy are exported to that policy's destinations and nowhere else. A real agent, real cgroups, real
Collectors as receivers, and an operator that sends what the test sets."""
import math
import pathlib
import time

import pytest

from node_operator import Operator, Pod
from parts import Collector, Recorder, dump, http_get, profiling, values, wait_until
from test_policy import cpu_seconds, moments, of, outside, pod, program  # noqa: F401

SECRET = "hunter2-not-for-eyes"


@pytest.fixture
def operator(tmp_path):
    o = Operator(tmp_path)
    yield o
    o.close()


@pytest.fixture
def collectors(tmp_path, collector_binary):
    """collectors(name): starts a Collector in a folder of its own."""
    made = {}

    def start(name, **options):
        directory = tmp_path / name
        directory.mkdir()
        made[name] = Collector(directory, collector_binary, **options).start()
        return made[name]

    yield start
    for c in made.values():
        c.kill()


def configuration(operator, default, timestamps=False, more=""):
    return f"""
receivers:
  profiling: {{samples_per_second: 50, reporter_interval: 1s, timestamps: {str(timestamps).lower()},
              process_filter: "^policy-"}}
processors:
  k8sattributes: {{operator: {operator.settings()}}}
exporters:
  otlp_grpc/main: {{endpoint: "127.0.0.1:{default.grpc}", tls: {{insecure: true}}}}
extensions:
  health_check: {{endpoint: "127.0.0.1:0"}}
service:
  extensions: [health_check]
  pipelines:
    profiles: {{receivers: [profiling], processors: [k8sattributes], exporters: [otlp_grpc/main]}}
{more}"""


def grpc(collector, **more):
    return {"kind": 1, "endpoint": f"127.0.0.1:{collector.grpc}", **more}


def http(collector, **more):
    return {"kind": 2, "endpoint": f"http://127.0.0.1:{collector.http}", **more}


def metrics(a):
    address = wait_until("the metrics' address", lambda: next(
        (line.rsplit(" ", 1)[1] for line in a.stderr().splitlines() if "health and metrics on" in line), None))
    return http_get(address)[2]


def metric(a, name):
    return sum(float(line.rsplit(" ", 1)[1]) for line in metrics(a).splitlines()
               if line.split("{")[0].split(" ")[0] == name)


def pods_in(samples):
    return {s["resource"].get("k8s.pod.name") for s in samples}


def slack(used, began):
    """Tolerance in seconds for a loop sampled at 50 Hz: on a busy machine a hit may find the loop waiting for a CPU."""
    return 0.3 + 4 * math.sqrt(used * 50 * max(0, 1 - used / (time.time() - began))) / 50


def test_samples_arrive_at_their_policys_destinations_only(agent, collectors, operator, pod, outside, tmp_path):
    main, ours, theirs = collectors("main"), collectors("ours"), collectors("theirs")
    a_pod, b_pod, both, plain, by_name, nowhere = (Pod(i, policy=i) for i in range(1, 7))
    operator.tell(policies={1: (True, 50, ["shop/a"]), 2: (True, 50, ["bank/b"]), 3: (True, 50, ["shop/a", "bank/b"]),
                            4: (True, 50), 5: (True, 50, ["main"]), 6: (True, 50, [])},
                  destinations={"shop/a": grpc(ours, headers={"x-secret": SECRET}), "bank/b": http(theirs)},
                  pods=[a_pod, b_pod, both, plain, by_name, nowhere], default=(True, 20))
    a = agent(config=configuration(operator, main))
    profiling(a)
    operator.connected()
    began, loops = time.time(), {p: pod(p) for p in (a_pod, b_pod, both, plain, by_name, nowhere)}
    time.sleep(6)
    used = {p: loop.end() for p, loop in loops.items()}
    time.sleep(1.5)
    text = metrics(a)
    assert a.stop() == 0, a.stderr()
    got = {"main": main.samples(), "ours": ours.samples(), "theirs": theirs.samples()}
    assert pods_in(got["ours"]) == {a_pod.name, both.name}
    assert pods_in(got["theirs"]) == {b_pod.name, both.name}
    # Samples outside of pods go to "main" too. "main" is also the exporter of the configuration; it gets no sample twice.
    assert pods_in(got["main"]) == {plain.name, by_name.name, None}
    for p, names in ((a_pod, ["ours"]), (b_pod, ["theirs"]), (both, ["ours", "theirs"]), (plain, ["main"]),
                     (by_name, ["main"]), (nowhere, [])):
        for name, samples in got.items():
            told = cpu_seconds(of(samples, p))
            if name in names:
                assert abs(told - used[p]) < 0.05 * used[p] + slack(used[p], began), (p.name, name, told, used[p])
            else:
                assert told == 0, (p.name, name)
    assert values(of(got["ours"], both)) == values(of(got["theirs"], both))
    assert "kiln_destinations 2" in text
    leaks = [f for f in pathlib.Path(tmp_path).rglob("*") if f.is_file() and SECRET.encode() in f.read_bytes()]
    assert leaks == [] and SECRET not in a.stderr() + text


def test_what_the_operator_tells_of_the_configurations_exporter_counts(agent, collectors, operator, pod):
    """The stream's endpoint and headers override those of the configured exporter of the same name, which keeps its queue. So
    a Secret that is rotated reaches that exporter."""
    filed, told, turned = collectors("filed"), collectors("told"), collectors("turned")
    p = Pod(1, policy=1)
    operator.tell(policies={1: (True, 50, ["main"])}, pods=[p], destinations={"main": grpc(told)})
    a = agent(config=configuration(operator, filed))
    profiling(a)
    operator.connected()
    loop = pod(p)
    time.sleep(4)
    operator.tell(destinations={"main": grpc(turned, headers={"x-token": SECRET})})
    time.sleep(4)
    loop.end()
    time.sleep(1.5)
    text = metrics(a)
    assert a.stop() == 0, a.stderr()
    got = {c: len(of(c.samples(), p)) for c in (filed, told, turned)}
    assert not got[filed] and got[told] and got[turned], (list(got.values()), a.stderr())
    assert "kiln_destinations 0" in text  # only the configuration's exporter exists
    assert SECRET not in a.stderr() + text


@pytest.mark.parametrize("lacks", ["header", "file"])
def test_what_a_missing_secret_holds_comes_from_the_operator(agent, collectors, operator, pod, tmp_path, lacks):
    """Without the value of a Secret the agent starts, but holds the exporter's profiles until the operator sends the value."""
    main = collectors("main")
    p = Pod(1, policy=1)
    operator.tell(policies={1: (True, 50, ["main"])}, pods=[p])
    tls = {"header": 'tls: {insecure: true}, headers: {x-token: ""}',
           "file": f"tls: {{insecure: true, ca_file: {tmp_path}/none.crt}}"}[lacks]
    a = agent(config=configuration(operator, main).replace("tls: {insecure: true}", tls))
    profiling(a)
    operator.connected()
    began, loop = time.time(), pod(p)
    time.sleep(3)
    assert metric(a, "kiln_export_requests_total") == 0
    assert "main: a header's value or a TLS file is missing: profiles wait" in a.stderr()
    operator.tell(destinations={"main": grpc(main, headers={"x-token": SECRET})})
    wait_until("requests", lambda: metric(a, "kiln_export_requests_total") > 0)
    used = loop.end()
    time.sleep(1.5)
    assert a.stop() == 0, a.stderr()
    assert abs(cpu_seconds(of(main.samples(), p)) - used) < 0.05 * used + slack(used, began)


def test_a_destination_changes_live(agent, collectors, operator, pod):
    """A busy loop's destination changes twice; each of its samples is at exactly one receiver."""
    main, first, second = collectors("main"), collectors("first"), collectors("second")
    p = Pod(1, policy=1)
    operator.tell(policies={1: (True, 50, ["shop/x"]), 2: (True, 50, ["shop/y"])}, pods=[p],
                  destinations={"shop/x": grpc(first)})
    a = agent(config=configuration(operator, main, timestamps=True))
    profiling(a)
    operator.connected()
    began, loop = time.time(), pod(p)
    time.sleep(3.3)
    # The pod gets another policy in the middle of a window; then the old policy and destination are deleted at once.
    p.policy = 2
    operator.tell(destinations={"shop/y": grpc(second)}, policies={2: (True, 50, ["shop/y"])}, pods=[p])
    switched = time.time()
    operator.tell(forgotten=[1, "shop/x"])
    time.sleep(3.3)
    # The destination keeps its name but moves to another receiver.
    operator.tell(destinations={"shop/y": http(first)})
    moved = time.time()
    time.sleep(3)
    used = loop.end()
    time.sleep(1.5)
    wait_until("what is not used is gone", lambda: metric(a, "kiln_destinations") == 1)
    assert a.stop() == 0, a.stderr()
    got = {name: moments(of(c.samples(), p)) for name, c in (("main", main), ("first", first), ("second", second))}
    assert got["main"] == []
    # Each sample went to the destination that was valid when the sample was taken; the stream takes a moment.
    assert all(t < switched + 0.5 or t > moved - 1.5 for t, _ in got["first"]), dump(got["first"])
    assert all(switched - 0.5 < t < moved + 0.5 for t, _ in got["second"]), dump(got["second"])
    assert any(t > switched - 1 and t < switched for t, _ in got["first"])
    times = [t for name in got for t, _ in got[name]]
    assert len(times) == len(set(times))
    assert abs(len(times) / 50 - used) < 0.05 * used + slack(used, began), (len(times) / 50, used)


def test_samples_wait_for_a_destination_that_is_not_told_yet(agent, collectors, operator, pod):
    main, late = collectors("main"), collectors("late")
    p, unknown = Pod(1, policy=1), Pod(2, policy=1)
    operator.tell(policies={1: (True, 50, ["shop/late"])}, pods=[p], default=(True, 50))
    a = agent(config=configuration(operator, main))
    profiling(a)
    operator.connected()
    began, loops = time.time(), {p: pod(p), unknown: pod(unknown)}
    time.sleep(0.5)
    # Samples that were taken before the pod was known follow its policy once the pod is known.
    operator.tell(pods=[unknown])
    time.sleep(2.5)
    operator.tell(destinations={"shop/late": grpc(late)})
    time.sleep(1)
    used = {q: loop.end() for q, loop in loops.items()}
    time.sleep(1.5)
    assert a.stop() == 0, a.stderr()
    samples = late.samples()
    for q, seconds in used.items():
        assert of(main.samples(), q) == []
        told = cpu_seconds(of(samples, q))
        assert abs(told - seconds) < 0.05 * seconds + slack(seconds, began), (told, seconds)


def test_secrets_of_a_destination_are_not_on_disk(agent, collectors, operator, pod, tmp_path):
    """The snapshot on disk has destinations without secrets: an agent that starts while the operator is away exports nothing
    to them."""
    main = collectors("main")
    p = Pod(1, policy=1)
    with Recorder() as recorder:
        operator.tell(policies={1: (True, 50, ["shop/a"])}, pods=[p], destinations={
            "shop/a": {"kind": 2, "endpoint": recorder.url, "headers": {"authorization": SECRET}}})
        a = agent(config=configuration(operator, main))
        profiling(a)
        operator.connected()
        loop = pod(p)
        wait_until("profiles", lambda: recorder.bodies)
        assert a.stop() == 0, a.stderr()
        snapshot = (tmp_path / "pods.snapshot").read_bytes()
        assert b"shop/a" in snapshot and SECRET.encode() not in snapshot
        operator.close()
        n = len(recorder.bodies)
        b = agent(config=configuration(operator, main))
        profiling(b)
        time.sleep(3)
        assert metric(b, "kiln_destinations") == 0 and len(recorder.bodies) == n
        loop.end()
        assert b.stop() == 0, b.stderr()
        assert of(main.samples(), p) == [] and SECRET not in a.stderr() + b.stderr()
