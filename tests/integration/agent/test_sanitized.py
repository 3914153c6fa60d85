# SPDX-License-Identifier: Apache-2.0
"""All exporters at once on a busy machine, while processes come and go and the receiver is away for a while: the sums of
all exporters agree in the end. In builds with sanitizers any report fails the test."""
import time

from parts import WAIT, agent as kiln, folded, free_port, http_get, pprof_sum, textdump, values, wait_until, workload

CONFIG = """
receivers:
  profiling: {{samples_per_second: 97, reporter_interval: 1s}}
exporters:
  pprof_file: {{path: {directory}/x.pb.gz}}
  folded_file: {{path: {directory}/x.folded}}
  debug: {{ignore_profiles_without_container_id: false, output: {directory}/x.text}}
  otlp_http: {{endpoint: "http://127.0.0.1:{collector.http}", retry_on_failure: {{initial_interval: 1s, max_interval: 1s}}}}
  otlp_grpc: {{endpoint: "127.0.0.1:{collector.grpc}", tls: {{insecure: true}}, retry_on_failure: {{initial_interval: 1s, max_interval: 1s}}}}
extensions:
  health_check: {{endpoint: "127.0.0.1:{port}"}}
  pprof: {{endpoint: "127.0.0.1:{own}"}}
service:
  extensions: [health_check, pprof]
  pipelines:
    profiles: {{receivers: [profiling], exporters: [pprof_file, folded_file, debug, otlp_http, otlp_grpc]}}
"""


def metric(base, name):
    """The value of a metric; None when the request times out, as with a slow build on a busy machine."""
    try:
        return kiln.metrics(base + "/metrics")[name]
    except OSError:
        return None


def test_everything_at_once(agent, collector, busy, tmp_path):
    collector.start()
    port, own = free_port(), free_port()
    text = CONFIG.format(directory=tmp_path, collector=collector, port=port, own=own)
    a = agent(config=text)
    base = f"http://127.0.0.1:{port}"
    wait_until("a window", lambda: a.process.poll() is not None or (http_get(base + "/readyz") or [0])[0] == 200)
    assert a.process.poll() is None, a.stderr()[-6000:]
    with workload.Workload("storm", "DIR", 60, seconds=10) as storm, workload.Workload("dlopen", "DIR", seconds=20), \
            workload.Workload("cxx", "throw", seconds=20), workload.Workload("jit", seconds=20):
        collector.stop()
        time.sleep(2)
        collector.start()
        answer = http_get(f"http://127.0.0.1:{own}/debug/pprof/profile?seconds=0", timeout=1)
        assert answer is None or answer[0] in (200, 400)
        wait_until("samples", lambda: (metric(base, "kiln_samples_total") or 0) > 0)
        storm.process.wait(WAIT)
    wait_until("the queues are empty", lambda: metric(base, "kiln_export_queue_requests") == 0)
    assert a.stop(WAIT) == 0, a.stderr()[-6000:]
    lines = (tmp_path / "x.text").read_text().splitlines()
    got = {
        "text": sum(s.value for s in textdump.parse(lines)),
        "folded": sum(folded(tmp_path / "x.folded").values()),
        "pprof": pprof_sum(tmp_path / "x.pb.gz")["samples"],
    }
    assert len(set(got.values())) == 1, got
    assert got["text"] > 20
    # Both OTLP exporters send every sample to the same receiver.
    assert values(collector.samples()) == 2 * got["text"]
