# SPDX-License-Identifier: Apache-2.0
"""The agent's health endpoints and metrics."""
import json
import os
import re
import time

import pytest

from parts import ROOT, Recorder, agent as kiln, free_port, http_get, wait_until

CONFIG = """
receivers:
  profiling: {samples_per_second: 97, reporter_interval: %s}
exporters:
  folded_file: {path: %s/x.folded}
extensions:
  health_check: {endpoint: "127.0.0.1:%d", path: /status}
service:
  extensions: [health_check]
  pipelines:
    profiles: {receivers: [profiling], exporters: [folded_file]}
"""

ROW = re.compile(r'^X\((\w+), (COUNTER|GAUGE), "(\w+)", "((?:[^"\\]|\\.)*)", "((?:[^"\\]|\\.)*)"\)$', re.M)
SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\[\\"n])*",?)*)\})? (\S+)')


def rows():
    """(name, labels, kind) of every metric in lib/metrics.def."""
    text = (ROOT / "lib/metrics.def").read_text(encoding="utf-8")
    found = [(m[3], m[4].replace('\\"', '"'), m[2].lower()) for m in ROW.finditer(text)]
    assert len(found) == text.count("\nX(") and len(found) > 50
    return found


def rows_of_runtimes():
    """(name, labels, kind) of the metrics that exist once for each runtime (agent/runtime/metrics.c)."""
    runtimes = sorted(d.name for d in (ROOT / "agent/runtime").iterdir() if (d / "walker.bpf.c").exists())
    source = (ROOT / "agent/runtime/metrics.c").read_text(encoding="utf-8")
    reasons = re.findall(r"\[KILN_MISSING_\w+\] = \"(\w+)\"", source)
    assert runtimes and len(reasons) > 5
    for name in runtimes:
        yield "kiln_runtime_frames_total", f'runtime="{name}"', "counter"
        for reason in reasons:
            yield "kiln_runtime_missing_total", f'runtime="{name}",reason="{reason}"', "counter"


def exposition(text):
    """({(name, labels): value}, {name: type}) of a Prometheus text, version 0.0.4. Fails when the text breaks the format."""
    types, helps, out, closed, family = {}, set(), {}, set(), None
    assert text.endswith("\n")
    for number, line in enumerate(text[:-1].split("\n"), 1):
        where = f"line {number}: {line!r}"
        if line.startswith("# HELP "):
            name = line.split(" ", 3)[2]
            assert name not in helps, where
            assert len(line.split(" ", 3)) == 4, where
            helps.add(name)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert kind in ("counter", "gauge", "histogram", "summary", "untyped") and name not in types, where
            types[name] = kind
        elif line.startswith("#"):
            continue
        else:
            match = SAMPLE.fullmatch(line)
            assert match, where
            name, labels = match[1], match[2] or ""
            if name != family:
                assert name not in closed, f"{where}: lines of one metric must stand together"
                closed.add(family)
                family = name
            assert name in types and name in helps, where
            assert (name, labels) not in out, where
            out[name, labels] = float(match[3])
            if types[name] == "counter":
                assert name.endswith("_total") and out[name, labels] >= 0, where
    return out, types


def start(agent, tmp_path, interval, *arguments, **options):
    port = free_port()
    a = agent(*arguments, config=CONFIG % (interval, tmp_path, port), **options)
    base = f"http://127.0.0.1:{port}"
    wait_until("somebody listens", lambda: a.process.poll() is not None or http_get(base + "/healthz"))
    assert a.process.poll() is None, a.stderr()
    return a, base


def test_ready_means_that_a_window_went_out(agent, busy, tmp_path):
    begun = time.monotonic()
    a, base = start(agent, tmp_path, "6s")

    def started():
        nonlocal begun
        asked, text = time.monotonic(), http_get(base + "/readyz")[2]
        if "the agent is starting" in text:
            begun = asked
        return "the agent is starting" not in text

    # The first window begins only after the tables of the runtimes that run on this machine are built.
    wait_until("started", started)
    status, _, text = http_get(base + "/readyz")
    other, windows = http_get(base + "/status")[0], kiln.metrics(base + "/metrics")["kiln_windows_total"]
    if time.monotonic() - begun < 5.5:  # otherwise the first window may have ended before the checks
        assert status == 503 and "first window" in text, text
        assert other == 503 and windows == 0
    assert http_get(base + "/healthz")[0] == 200, "alive from the start"
    wait_until("ready", lambda: http_get(base + "/readyz")[0] == 200)
    assert kiln.metrics(base + "/metrics")["kiln_windows_total"] >= 1
    status, kind, text = http_get(base + "/status")
    assert status == 200 and kind.startswith("application/json")
    assert set(json.loads(text)) == {"status", "upSince", "uptime"}
    assert http_get(base + "/nothing")[0] == 404
    assert a.stop() == 0, a.stderr()


REJECTED = """
receivers: {profiling: {samples_per_second: 97, reporter_interval: 500ms}}
exporters: {otlp_http: {endpoint: "%s"}}
extensions: {health_check: {endpoint: "127.0.0.1:%d"}}
service: {extensions: [health_check], pipelines: {profiles: {receivers: [profiling], exporters: [otlp_http]}}}
"""


def test_not_ready_while_a_receiver_rejects_everything(agent, busy):
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with Recorder(status=403) as receiver:
        a = agent("--pid", busy.pid, config=REJECTED % (receiver.url, port))
        wait_until("it is told", lambda: "every profile is rejected" in (http_get(url + "/readyz") or ("", "", ""))[2])
        status, _, text = http_get(url + "/readyz")
        assert status == 503 and "otlp_http rejects: HTTP 403 (are `headers` right?)" in text, text
        requests = len(receiver.bodies)
        assert requests >= 3, "one refusal may be of one request only"
        assert http_get(url + "/healthz")[0] == 200, "a restart would not help"
        receiver.status = 200
        a.wait_ready(url=url + "/readyz")
        assert a.stop() == 0, a.stderr()


@pytest.mark.skipif(not os.environ.get("KILN_ENDLESS_RING"), reason="nothing is preloaded in this build")
def test_a_ring_that_is_never_empty_stops_nothing_else(agent, busy, tmp_path):
    """Samples arrive faster than the agent reads them: it still answers requests and ends windows."""
    a, base = start(agent, tmp_path, "1s", "--pid", busy.pid, env={"LD_PRELOAD": os.environ["KILN_ENDLESS_RING"]})
    a.wait_ready(url=base + "/readyz")
    wait_until("samples", lambda: kiln.metrics(base + "/metrics")["kiln_samples_total"] > 0)
    windows = kiln.metrics(base + "/metrics")["kiln_windows_total"]
    wait_until("two windows more", lambda: kiln.metrics(base + "/metrics")["kiln_windows_total"] >= windows + 2)
    a.process.kill()  # an orderly stop would wait until the ring is empty


def test_metrics_are_all_there_and_well_formed(agent, busy, tmp_path):
    a, base = start(agent, tmp_path, "1s")
    a.wait_ready(url=base + "/readyz")
    status, kind, text = http_get(base + "/metrics")
    assert status == 200 and kind.startswith("text/plain; version=0.0.4")
    got, types = exposition(text)
    want = [*rows(), *rows_of_runtimes()]
    assert [(n, l) for n, l, _ in want if (n, l) not in got] == []
    assert [n for n, _, k in want if types[n] != k] == []
    known = {(n, l) for n, l, _ in want}
    # A runtime version has a row once a program of it was seen, such as the Python that runs this test.
    met = {k for k in got if k[0] == "kiln_runtime_programs_total"}
    assert [labels for _, labels in met if not re.fullmatch(r'runtime="[\w-]+",version="[\w.+-]+"', labels)] == []
    assert len(met) < 200
    assert types.get("kiln_runtime_programs_total", "counter") == "counter"
    known |= met
    assert [k for k in got if k[0].startswith("kiln_") and not k[0].startswith("kiln_process_") and k not in known] == []
    for name in ("process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds"):
        assert got[name, ""] > 0, name

    def numbers():
        return exposition(http_get(base + "/metrics")[2])[0]

    # On a busy machine the first window may have no named sample yet.
    for name in ("kiln_samples_total", "kiln_bpf_runs_total", "kiln_bpf_map_bytes", "kiln_processes", "kiln_images_loaded",
                 "kiln_unwind_table_bytes", "kiln_stacks_interned", "kiln_symbol_tables_built_total"):
        wait_until(name, lambda name=name: sum(v for (n, _), v in numbers().items() if n == name) > 0)
    # Counters never decrease.
    wait_until("more samples", lambda: numbers()["kiln_samples_total", ""] > got["kiln_samples_total", ""])
    later = numbers()
    assert [k for k, v in got.items() if types[k[0]] == "counter" and later[k] < v] == []
    assert later["kiln_samples_total", ""] > got["kiln_samples_total", ""]
    # The agent's metric of its resident memory agrees with /proc.
    assert abs(later["process_resident_memory_bytes", ""] - a.rss_kib() * 1024) < 64 << 20
    assert a.stop() == 0, a.stderr()
