# SPDX-License-Identifier: Apache-2.0
"""Links, attributes and timestamps as an OTLP receiver sees them, decoded by an independent package."""
import gzip
import http.server
import os
import sys
import threading
import time

import pytest

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, ".."), os.path.join(HERE, "..", "lib"), os.path.join(HERE, "..", "agent")]
import otlp_decode  # noqa: E402
import parts  # noqa: E402
import test_labels  # noqa: E402
from kiln import agent  # noqa: E402


class Receiver(http.server.ThreadingHTTPServer):
    def __init__(self):
        self.bodies = []
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.bodies.append(gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body)
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def profile(pid, *arguments):
    receiver = Receiver()
    try:
        config = f"""
receivers: {{profiling: {{samples_per_second: 97, reporter_interval: 1s}}}}
exporters: {{otlp_http: {{endpoint: "http://127.0.0.1:{receiver.server_address[1]}"}}}}
service: {{pipelines: {{profiles: {{receivers: [profiling], exporters: [otlp_http]}}}}}}
"""
        with agent.Agent("--pid", pid, "--duration", "4s", *arguments, config=config) as a:
            assert a.wait() == 0, a.stderr()
        requests = [r for body in receiver.bodies for r in otlp_decode.messages(body)]
        assert requests and not [c for r in requests for c in otlp_decode.check(r)]
        return requests, [s for body in receiver.bodies for s in otlp_decode.decode(body)]
    finally:
        receiver.shutdown()
        receiver.server_close()


def links(requests):
    """(trace id, span id) in hex of each sample, or None for a sample without a link."""
    for r in requests:
        for sample in (s for rp in r.resource_profiles for sp in rp.scope_profiles for p in sp.profiles for s in p.samples):
            link = r.dictionary.link_table[sample.link_index]
            yield (link.trace_id.hex(), link.span_id.hex()) if sample.link_index else None


def test_a_trace_is_a_link_and_labels_are_attributes():
    with test_labels.Program("labels-exec", "steady", 1) as p:
        requests, samples = profile(p.pid, "--labels", "tenant")
    found = [x for x in links(requests) if x]
    assert len(set(found)) == 2, "two contexts, one a tenant"
    assert all(test_labels.span_of(trace) == span for trace, span in found)
    tenants = {s["attributes"].get("tenant") for s in samples}
    assert {"A", "B"} <= tenants
    for s in samples:
        assert not {"trace_id", "span_id", "http.route", "secret"} & set(s["attributes"])
        work = next((f["name"] for f in s["frames"] if f["name"] in ("work_A", "work_B")), None)
        if work and "tenant" in s["attributes"]:
            assert s["attributes"]["tenant"] == work[-1]


@pytest.mark.parametrize("wanted", [True, False])
def test_each_sample_has_its_time_where_that_is_asked_for(wanted):
    with test_labels.Program("labels-exec", "steady", 1) as p:
        _, samples = profile(p.pid, *(["--timestamps"] if wanted else []))
    times = [t for s in samples for t in s["timestamps"]]
    assert sum(s["value"] for s in samples) >= 10
    if not wanted:
        assert not times
        return
    assert all(len(s["timestamps"]) == s["value"] for s in samples)
    # The hits of one timer are 10 ms apart; timestamps coincide only when a timer is late.
    assert len(set(times)) > 0.9 * len(times)
    assert max(times) - min(times) > 1e9 and abs(max(times) / 1e9 - time.time()) < 60


def test_a_program_without_labels_has_no_links():
    with test_labels.Program("labels-exec", "none", 1) as p:
        requests, samples = profile(p.pid, "--labels", "*")
    assert samples and not any(links(requests))
    assert all(len(r.dictionary.link_table) == 1 for r in requests)


def test_waits_traces_and_times_pass_a_real_collector(tmp_path):
    collector = parts.Collector(tmp_path, parts.components.collector())
    try:
        collector.start()
        config = f"""
receivers: {{profiling: {{samples_per_second: 97, reporter_interval: 1s, off_cpu_threshold: 1, labels: [tenant], timestamps: true}}}}
exporters: {{otlp_grpc: {{endpoint: "127.0.0.1:{collector.grpc}", tls: {{insecure: true}}}}}}
service: {{pipelines: {{profiles: {{receivers: [profiling], exporters: [otlp_grpc]}}}}}}
"""
        with test_labels.Program("labels-exec", "waiting", 1) as idle, test_labels.Program("labels-exec", "steady", 1) as busy, \
                agent.Agent("--pid", idle.pid, "--pid", busy.pid, "--duration", "5s", config=config) as a:
            assert a.wait() == 0, a.stderr()
        samples = collector.samples()
        assert not collector.complaints()
        requests = [r for output in collector.outputs for r in otlp_decode.messages(output.read_bytes())]
    finally:
        collector.kill()
    waits = [s for s in samples if s["type"] == "off_cpu"]
    hits = [s for s in samples if s["type"] != "off_cpu"]
    assert {s["unit"] for s in waits} == {"nanoseconds"} and all(s["attributes"]["off_cpu.cause"] for s in waits)
    assert sum(s["value"] for s in waits if s["attributes"]["off_cpu.cause"] == "sleep") > 2e9
    assert not any(s["timestamps"] for s in waits) and all(len(s["timestamps"]) == s["value"] for s in hits)
    for of in (waits, hits):
        assert {"A", "B"} <= {s["attributes"].get("tenant") for s in of}
    assert len({x for x in links(requests) if x}) == 2, "two contexts, which both programs have"


def test_off_cpu_keeps_the_rules_of_the_encoder():
    with test_labels.Program("labels-exec", "waiting", 1) as p:
        _, samples = profile(p.pid, "--labels", "tenant", "--off-cpu", "--timestamps")
    assert any(s["type"] == "off_cpu" and s["attributes"].get("tenant") for s in samples)
