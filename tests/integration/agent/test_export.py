# SPDX-License-Identifier: Apache-2.0
"""The agent with a real Collector: every sample arrives exactly once, under its own name."""
import itertools
import json
import os
import re
import socket
import threading
import time
import uuid

import pytest

from parts import (LONG, Recorder, agent as kiln, contained, folded, free_port, otlp_decode, period, pprof_sum, profiling, values,
                   wait_until)

WAYS = [("grpc", "gzip", "g6"), ("grpc", "none", "v1.11"), ("http", "gzip", "g6"), ("http", "zstd", "g6"),
        ("http", "none", "auto")]
OUTAGE = 60 if LONG else 10


def exporter(collector, protocol, compression="gzip", generation="g6"):
    where = f'"127.0.0.1:{collector.grpc}"' if protocol == "grpc" else f'"http://127.0.0.1:{collector.http}"'
    return (f"  otlp_{protocol}: {{endpoint: {where}, compression: {compression}, proto_generation: {generation},"
            f" tls: {{insecure: true}}, retry_on_failure: {{initial_interval: 1s, max_interval: 2s}}}}\n")


def configuration(directory, *exporters, hz=97, interval="1s", health=None, extra=""):
    """A configuration with all exporters: the given OTLP ones, text on standard output, a pprof and a folded file."""
    text = f"""
receivers:
  profiling: {{samples_per_second: {hz}, reporter_interval: {interval}{extra}}}
exporters:
  pprof_file: {{path: {directory}/x.pb.gz}}
  folded_file: {{path: {directory}/x.folded}}
  debug: {{ignore_profiles_without_container_id: false}}
{"".join(exporters)}
extensions:
  health_check: {{endpoint: "127.0.0.1:{health or 13133}"}}
service:
  extensions: [{"health_check" if health else ""}]
  pipelines:
    profiles:
      receivers: [profiling]
      exporters: [{", ".join(["pprof_file", "folded_file", "debug"] + [e.split(":")[0].strip() for e in exporters])}]
"""
    return text


def sums(run, directory, collector):
    """{exporter: sum of the values that it received}."""
    return {
        "text": sum(s.value for s in run.samples()),
        "folded": sum(folded(f"{directory}/x.folded").values()),
        "pprof": pprof_sum(f"{directory}/x.pb.gz")["samples"],
        "otlp": values(collector.samples()),
    }


@pytest.mark.parametrize("protocol, compression, generation", WAYS)
def test_what_is_sampled_arrives(agent, collector, busy, tmp_path, protocol, compression, generation):
    collector.start()
    a = agent("--duration", "4s", config=configuration(tmp_path, exporter(collector, protocol, compression, generation)))
    assert a.wait() == 0, a.stderr()
    got = sums(a, tmp_path, collector)
    assert len(set(got.values())) == 1, got
    assert got["otlp"] > 20
    assert collector.complaints() == []
    for sample in collector.samples():
        assert (sample["type"], sample["unit"]) == ("samples", "count")
        assert sample["period"] == ("cpu", "nanoseconds", period(97))
        assert sample["value"] > 0
        assert {"process.pid", "thread.id", "thread.name"} <= set(sample["attributes"])
        assert {"host.name", "host.arch", "os.type"} <= set(sample["resource"])
        assert sample["frames"] or sample["attributes"]["thread.name"]


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_check_asks_the_receiver(agent, collector, tmp_path, protocol):
    """--check reports the receiver's state. A receiver that is unreachable or speaks no TLS does not make it fail."""
    def check(text):
        a = agent("--check", config=text)
        assert a.wait() == 0, a.stderr()
        return {line.split()[0]: line for line in a.stdout().splitlines() if line.strip()}

    text = configuration(tmp_path, exporter(collector, protocol))
    assert "is not reachable" in check(text)["exporter"]
    collector.start()
    told = check(text)
    assert told["exporter"].endswith(" takes profiles"), told
    assert told["as"].endswith("as proto_generation says: g6")
    assert "97 times a second" in told["BPF"] and "python" in told["tracers"]
    secure = text.replace("http://", "https://").replace("insecure: true", "insecure_skip_verify: true")
    assert "the port speaks plain text, not TLS (" in check(secure)["exporter"]
    assert collector.samples() == []


@pytest.mark.parametrize("answer", [b"", b"\x15\x03\x03\x00\x02\x02\x46"], ids=["closed", "alert"])
@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_check_tells_of_a_receiver_that_wants_tls(agent, tmp_path, protocol, answer):
    """A TLS server closes the connection of a plain-text client, some servers after an alert: --check suggests https://."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def serve():
            peer = listener.accept()[0]
            with peer:
                peer.recv(4096)
                peer.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        where = f"127.0.0.1:{port}" if protocol == "grpc" else f"http://127.0.0.1:{port}"
        a = agent("--check", config=configuration(tmp_path, (
            f'  otlp_{protocol}: {{endpoint: "{where}", tls: {{insecure: true}}}}\n')))
        assert a.wait() == 0, a.stderr()
    row = next(line for line in a.stdout().splitlines() if f"otlp_{protocol}" in line)
    assert re.search(r"TLS.*https://", row), row


def test_check_reads_the_token_of_the_page(agent, tmp_path):
    """--check rejects a token that an ordinary start would reject, with the same error."""
    token = tmp_path / "token"
    for text, code in (("12345\n", 2), ("a-token-of-some-length\n", 0)):
        token.write_text(text)
        a = agent("--check", config=LIVE % token)
        assert a.wait() == code, a.stderr()
        assert ("extensions.live" in a.stderr()) == (code != 0)


def test_check_tells_of_waits_labels_and_probes(agent):
    def check(code, *probes):
        a = agent("--check", "--stdout", "--off-cpu-threshold", 0.02, "--labels", "tenant",
                  *itertools.chain(*(("--probe", p) for p in probes)))
        assert a.wait() == code, a.stderr()
        return [line.split(maxsplit=1) for line in a.stdout().splitlines()], a.stderr()

    rows, _ = check(0, "tracepoint:sched:sched_process_fork,rate=7")
    assert ["off-CPU", "20 stacks for each second that a thread waits"] in rows
    assert ["labels", "trace id, span id, tenant"] in rows
    assert [words for title, words in rows if title == "probe"] == \
        ["tracepoint:sched:sched_process_fork can be attached: 7 stacks a second and CPU at most"]
    rows, said = check(2, "tracepoint:sched:no_such_event")
    assert any(title == "probe" and "no_such_event: " in words for title, words in rows), rows
    assert "probe tracepoint:sched:no_such_event: " in said


LIVE = """
receivers: {profiling: {}}
exporters: {debug: {}}
extensions: {live: {endpoint: "127.0.0.1:0", token_file: %s}}
service: {extensions: [live], pipelines: {profiles: {receivers: [profiling], exporters: [debug]}}}
"""


@pytest.mark.parametrize("generation", ["g4", "g5", "g6"])
def test_every_generation_gets_the_same_samples(agent, busy, tmp_path, generation):
    """Checks the request bodies as the agent sent them, without a Collector in between."""
    with Recorder() as recorder:
        text = configuration(tmp_path, RAW.format(url=recorder.url, generation=generation))
        a = agent("--duration", "3s", config=text)
        assert a.wait() == 0, a.stderr()
    want = sum(s.value for s in a.samples())
    assert want > 20 and recorder.bodies
    if generation == "g6":
        assert [c for body in recorder.bodies for c in otlp_decode.check(otlp_decode.messages(body)[0])] == []
        assert sum(values(otlp_decode.decode(body)) for body in recorder.bodies) == want
    # In every generation the string table contains the names.
    assert all(b"wl-threads" in body for body in recorder.bodies)
    assert any(f"leaf_{i}".encode() in body for body in recorder.bodies for i in range(8))


RAW = '  otlp_http: {{endpoint: "{url}", compression: none, proto_generation: {generation}}}\n'


@pytest.mark.skipif(not os.environ.get("KILN_CLOCK_SHIFT"), reason="the clock cannot be moved in this build")
def test_times_follow_a_clock_that_is_set(agent, collector, busy, tmp_path):
    """The wall clock is set back by an hour, then forward by a day: each sample has the wall-clock time of its moment."""
    shifts = (0, -3600, 86400)
    file = tmp_path / "shift"
    file.write_text("0")
    collector.start()
    a = agent("--pid", busy.pid, config=configuration(tmp_path, exporter(collector, "grpc"), extra=", timestamps: true"),
              env={"LD_PRELOAD": os.environ["KILN_CLOCK_SHIFT"], "KILN_CLOCK_SHIFT_FILE": str(file)})
    profiling(a)
    begun = time.time()
    for seconds in shifts:
        file.write_text(str(seconds))
        time.sleep(3)
    ended = time.time()
    assert a.stop() == 0, a.stderr()
    times = [t / 1e9 for s in collector.samples() for t in s["timestamps"]]
    told = {seconds: sum(begun - 10 <= t - seconds <= ended + 1 for t in times) for seconds in shifts}
    assert min(told.values()) > 20, told
    assert sum(told.values()) == len(times), (told, len(times))


def test_names_and_identity_of_a_workload(agent, collector, busy, tmp_path):
    collector.start()
    a = agent("--duration", "6s", "--pid", busy.pid, "--service-name", "orchard", "--tags", "colour=red,size=4",
              config=configuration(tmp_path, exporter(collector, "grpc")))
    assert a.wait() == 0, a.stderr()
    samples = collector.samples()
    assert values(samples) > 20
    assert {s["attributes"]["process.pid"] for s in samples} == {busy.pid}
    # Thread i runs leaf_i below i + 1 calls of middle_i; the workload reports the tid of thread i.
    want = {c.tid: i for i, c in enumerate(busy.chains)}
    seen = set()
    right = 0
    for s in samples:
        assert s["attributes"]["thread.name"] == "wl-threads"
        resource = s["resource"]
        assert resource["service.name"] == "orchard" and resource["colour"] == "red" and resource["size"] == "4"
        assert resource["process.executable.name"] == "wl-threads"
        assert resource["process.executable.path"] == busy.path
        i = want[s["attributes"]["thread.id"]]
        user = [f["name"] for f in s["frames"] if f["type"] != "kernel"]
        if user[:i + 3] == [f"leaf_{i}"] + [f"middle_{i}"] * (i + 1) + [f"worker_{i}"]:
            right += s["value"]
            seen.add(i)
            own = [f for f in s["frames"] if f["name"] == f"leaf_{i}"]
            assert own[0]["mapping"]["file"].endswith("wl-threads")
            assert own[0]["mapping"]["build_ids"]
    assert seen == set(range(8))
    assert right >= 0.97 * values(samples), right / values(samples)


def test_sum_is_what_the_counters_say(agent, collector, busy, tmp_path):
    """After the workload has ended and all samples are processed, the exporters' sums equal the agent's counters."""
    collector.start()
    port = free_port()
    a = agent("--pid", busy.pid, config=configuration(tmp_path, exporter(collector, "grpc"), health=port))
    a.wait_ready(url=f"http://127.0.0.1:{port}/readyz")
    time.sleep(5)
    busy.process.kill()
    busy.process.wait()

    def settled():
        before = kiln.metrics(f"http://127.0.0.1:{port}/metrics")
        time.sleep(2.5)
        after = kiln.metrics(f"http://127.0.0.1:{port}/metrics")
        same = before["kiln_samples_total"] == after["kiln_samples_total"]
        return after if same and after['kiln_queue_length{queue="samples_without_table"}'] == 0 else None

    m = wait_until("no more samples", settled)
    assert a.stop() == 0, a.stderr()
    lost = m["kiln_samples_dropped_total"] - m['kiln_samples_dropped_total{reason="ring_full"}']
    got = sums(a, tmp_path, collector)
    assert set(got.values()) == {m["kiln_samples_total"] - lost}, (got, lost)
    assert got["otlp"] > 20
    # Each stack walk is counted under exactly one end.
    assert m["kiln_unwind_end_total"] == m["kiln_samples_total"]
    for name in ("kiln_export_rejected_profiles_total", "kiln_export_dropped_samples_total",
                 "kiln_local_export_dropped_samples_total", "kiln_windows_failed_total"):
        assert m[name] == 0, name
    assert m['kiln_export_samples_total{result="sent"}'] == got["otlp"]
    # The workload's stacks are nearly all complete.
    assert m["kiln_samples_incomplete_total"] <= 0.01 * m["kiln_samples_total"]


@pytest.mark.parametrize("which", [None, ("memory",), ("",)], ids=["all-hierarchies", "memory-only", "v2-only"])
@pytest.mark.parametrize("style", ["cgroupfs", "systemd"])
def test_container_and_pod_of_a_process(agent, collector, tmp_path, which, style):
    pod, container = str(uuid.uuid4()), (uuid.uuid4().hex * 2)[:64]
    if style == "cgroupfs":
        path = f"/kubepods/burstable/pod{pod}/{container}"
    else:
        path = (f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{pod.replace('-', '_')}.slice"
                f"/cri-containerd-{container}.scope")
    collector.start()
    try:
        with contained(path, "nest", 11, which=which) as w:
            a = agent("--duration", "5s", "--pid", w.pid, env={"NODE_NAME": "meadow"},
                      config=configuration(tmp_path, exporter(collector, "http")))
            assert a.wait() == 0, a.stderr()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    samples = collector.samples()
    assert values(samples) > 10
    for s in samples:
        assert s["resource"]["container.id"] == container
        assert s["resource"]["k8s.pod.uid"] == pod
        assert s["resource"]["k8s.node.name"] == "meadow"
    # The text output has the same attributes, container.id first.
    block = a.stdout().split("New Resource Profile --------------\n")[1]
    assert block.startswith(f"  container.id: {container} (Str)\n")


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_an_outage_loses_and_doubles_nothing(agent, collector, busy, tmp_path, protocol):
    collector.start()
    port = free_port()
    a = agent(config=configuration(tmp_path, exporter(collector, protocol), health=port))
    url = f"http://127.0.0.1:{port}/metrics"
    wait_until("first requests", lambda: _metric(url, 'kiln_export_requests_total{result="sent"}') >= 2)
    collector.stop()
    stopped = time.time_ns()
    time.sleep(OUTAGE)
    queued = _metric(url, "kiln_export_queue_requests")
    assert queued >= OUTAGE / 2, "the agent went on while nobody listened"
    assert _metric(url, 'kiln_export_requests_total{result="retry"}') > 0
    collector.start()
    wait_until("the queue is empty", lambda: _metric(url, "kiln_export_queue_requests") == 0)
    time.sleep(2)
    assert a.stop() == 0, a.stderr()
    got = sums(a, tmp_path, collector)
    assert len(set(got.values())) == 1, got
    # Every window arrived once: no pair of time and stack occurs twice. Only the workload's stacks are compared: stacks of
    # an interpreter may look equal here, since they can differ in the position within a line only.
    seen = set()
    for s in collector.samples():
        key = (s["start"], json.dumps(s["resource"], sort_keys=True), s["attributes"]["thread.id"],
               json.dumps(s["frames"], sort_keys=True))
        assert key not in seen, key
        if "wl-threads" in key[3]:
            seen.add(key)
    assert len(seen) > 10
    # The windows follow each other without gaps; on a busy machine they are longer. A window without samples is not sent,
    # such as the first ones, while samples wait for unwind tables.
    windows = sorted({(s["start"], s["duration"]) for s in collector.samples() if s["start"] > stopped - 2e9})
    assert len(windows) > 2 and windows[0][0] < stopped + OUTAGE * 1e9 / 2
    gaps = [later[0] - sum(before) for before, later in zip(windows, windows[1:])]
    assert max(map(abs, gaps)) < 0.5e9, "a window in the middle is missing"


def _metric(url, name):
    try:
        return kiln.metrics(url).get(name, 0)
    except OSError:
        return 0
