# SPDX-License-Identifier: Apache-2.0
"""Profiles pass from a real agent, with the configuration that the operator renders, over TLS, through a real Collector with
the gateway's configuration, to a server that reads requests as Pyroscope does."""

import concurrent.futures
import re
import subprocess
import time

import grpc
import pytest
from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2 as messages
from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2_grpc as service

from conftest import OVERLAYS, ROOT, kind, render, secret_files
from kiln import agent as kiln, workload
from parts import Sandbox, otlp_decode, period, profiling, wait_until


class Backend(service.ProfilesServiceServicer):
    """A gRPC server on a Unix socket, which is reachable from every network namespace."""

    def __init__(self, path):
        self.requests = []
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        service.add_ProfilesServiceServicer_to_server(self, self.server)
        self.server.add_insecure_port(f"unix:{path}")
        self.server.start()

    def Export(self, request, context):  # noqa: N802
        self.requests.append(request)
        return messages.ExportProfilesServiceResponse()

    def samples(self):
        return [s for r in self.requests for s in otlp_decode.decode(r.SerializeToString())]


@pytest.fixture(scope="module")
def rendered(cluster, installed, tmp_path_factory):
    """(agent.yaml, collector.yaml) of overlay pyroscope, as pods would mount them."""
    items = cluster.build(OVERLAYS / "pyroscope")
    gateway, = [i for i in kind(items, "ConfigMap") if i["metadata"]["name"].startswith("gateway-")]
    # whenUnknown: Default, since without an operator the agent would hold all samples.
    made = render(cluster, items, tmp_path_factory.mktemp("render"), {"whenUnknown": "Default"})
    return kind(made, "ConfigMap", "kiln-agent")[0]["data"]["agent.yaml"], gateway["data"]["collector.yaml"]


class Gateway:
    """The Collector with the gateway's configuration, plus here.yaml: the paths of the certificate, a health port that the
    agent does not use, and the backend's socket."""

    def __init__(self, directory, binary, config, prefix=()):
        (directory / "collector.yaml").write_text(config)
        (directory / "here.yaml").write_text(f"""
receivers: {{otlp: {{protocols: {{grpc: {{tls: {{cert_file: {directory}/tls.crt, key_file: {directory}/tls.key}}}}}}}}}}
extensions: {{health_check: {{endpoint: "127.0.0.1:13134"}}}}
exporters: {{otlp_grpc: {{endpoint: "unix://{directory}/backend"}}}}
""")
        self.log_path = directory / "collector.log"
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                [*prefix, binary, "--feature-gates=service.profilesSupport", f"--config={directory}/collector.yaml",
                 f"--config={directory}/here.yaml"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until("the gateway is ready",
                   lambda: "Everything is ready" in self.log() or self.process.poll() is not None)
        assert self.process.poll() is None, self.log()[-3000:]

    def log(self):
        return self.log_path.read_text(errors="replace")

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
        assert self.process.wait(40) == 0, self.log()[-3000:]

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def metric(sandbox, name):
    """The value of the Collector's own metric NAME, summed over its labels; None when there is none."""
    text = sandbox.get("http://127.0.0.1:8888/metrics") or ""
    found = re.findall(rf"^{name}(?:_total)?(?:\{{[^}}]*\}})? ([0-9.e+]+)$", text, re.M)
    return sum(map(float, found)) if found else None


def as_pyroscope_reads(request):
    """[{label: value}] of the resources, as Pyroscope reads them. It reads key, string_value, int_value and one-element
    arrays (pkg/ingester/otlp/ingest_handler.go of v2.2.1), and ignores references into the dictionary."""
    return [{a.key: a.value.string_value for a in r.resource.attributes} for r in request.resource_profiles]


@pytest.fixture(scope="module")
def run(cluster, collector, rendered, secrets, tmp_path_factory):
    """Runs agent and gateway for some seconds, the backend only later. The requests, metrics and logs of the run."""
    directory = tmp_path_factory.mktemp("gateway")
    for name, data in secret_files(cluster, secrets).items():
        (directory / name).write_bytes(data)
    agent_yaml, collector_yaml = rendered
    # Only the paths of files that a pod would mount are changed.
    text = agent_yaml.replace("/etc/kiln-tls/gateway", str(directory))
    text = text.replace("/var/lib/kiln", str(directory / "state"))
    assert str(directory) in text and "gateway.pyroscope.svc:4317" in text
    try:
        sandbox = Sandbox(directory, ["gateway.pyroscope.svc"])
    except RuntimeError as error:
        pytest.skip(f"integration/operator/deploy: {error}")
    gateway = Gateway(directory, collector, collector_yaml, sandbox.prefix)
    a = kiln.Agent(prefix=sandbox.prefix, config=text, env={"NODE_NAME": "node-1"})
    backend = None
    try:
        with workload.Workload("threads", seconds=120):
            wait_until("the agent starts", lambda: "profiling at" in a.stderr() or a.process.poll() is not None)
            if a.process.poll() == 3:
                pytest.skip("integration/operator/deploy: " + a.stderr()[-300:])
            profiling(a)
            time.sleep(3)
        # The run is shorter than a window (15 s): the profile is sent when the agent stops.
        assert a.stop(timeout=60) == 0, a.stderr()
        wait_until("the gateway has it", lambda: metric(sandbox, "otelcol_receiver_accepted_profile_samples"))
        accepted = metric(sandbox, "otelcol_receiver_accepted_profile_samples")
        wait_until("it is due",
                   lambda: "Will retry the request" in gateway.log() or "backend: connect" in gateway.log())
        backend = Backend(directory / "backend")
        wait_until("all is there", lambda: len(backend.samples()) >= accepted)
        numbers = {name: metric(sandbox, f"otelcol_{name}_profile_samples") for name in
                   ("receiver_accepted", "receiver_refused", "receiver_failed", "exporter_send_failed",
                    "exporter_sent")}
        health = sandbox.get("http://127.0.0.1:13134/")
        gateway.stop()
        yield {"backend": backend, "gateway": numbers, "agent": a.stderr(), "health": health}
    finally:
        a.close()
        gateway.close()
        sandbox.close()
        if backend:
            backend.server.stop(None)


def test_everything_arrives_once(run):
    """Every sample arrives once, though the backend is away when the first request is due."""
    samples, numbers = run["backend"].samples(), run["gateway"]
    assert len(samples) == numbers["receiver_accepted"] == numbers["exporter_sent"]
    # Some seconds at 20 Hz on each CPU; the number of distinct stacks depends on what else the machine runs.
    assert sum(s["value"] for s in samples) > 20
    assert not numbers["receiver_refused"] and not numbers["receiver_failed"] and not numbers["exporter_send_failed"]
    assert "rejected" not in run["agent"] and "unreachable" not in run["agent"], run["agent"]


def test_samples_are_whole(run):
    samples = run["backend"].samples()
    assert {"process.pid", "thread.id", "thread.name"} <= set(samples[0]["attributes"])
    stacks = [[f["name"] for f in s["frames"]] for s in samples]
    ours = [s for s in stacks if s and s[0].startswith("leaf_")]
    # The Collector merges requests and renumbers their references: each stack must still be of one thread.
    assert len(ours) >= 4 and all(f"worker_{s[0][-1]}" in s and s[1] == f"middle_{s[0][-1]}" for s in ours)
    assert all(s["period"] == ("cpu", "nanoseconds", period(20)) for s in samples)


def test_pyroscope_finds_the_attributes(run):
    """The attributes are checked as Pyroscope reads them: a newer Collector may send a form that Pyroscope cannot read."""
    for request in run["backend"].requests:
        for resource in as_pyroscope_reads(request):
            assert "" not in resource and all(resource.values()), resource
            assert {"host.arch", "os.type"} <= set(resource) and resource["host.name"] == "node-1"


def test_the_gateway_is_healthy(run):
    assert run["health"] and "Server available" in run["health"]


def test_who_does_not_trust_the_gateway_sends_nothing(cluster, collector, rendered, secrets, tmp_path):
    """An agent with another CA sends nothing, which shows that it verifies the certificate."""
    agent_yaml, collector_yaml = rendered
    for name, data in secret_files(cluster, secrets).items():
        (tmp_path / name).write_bytes(data)
    other = subprocess.run([ROOT / "hack/gateway-certs", "--days", "2"], capture_output=True, text=True,
                           check=True).stdout
    (tmp_path / "other").mkdir()
    (tmp_path / "other/ca.crt").write_bytes(secret_files(cluster, other)["ca.crt"])
    try:
        sandbox = Sandbox(tmp_path, ["gateway.pyroscope.svc"])
    except RuntimeError as error:
        pytest.skip(f"integration/operator/deploy: {error}")
    gateway = Gateway(tmp_path, collector, collector_yaml, sandbox.prefix)
    text = agent_yaml.replace("/etc/kiln-tls/gateway", str(tmp_path / "other"))
    text = text.replace("/var/lib/kiln", str(tmp_path / "state"))
    text = text.replace("reporter_interval: 15s", "reporter_interval: 1s")
    a = kiln.Agent(prefix=sandbox.prefix, config=text)
    try:
        wait_until("it says so", lambda: "unreachable" in a.stderr() or a.process.poll() is not None)
        if a.process.poll() == 3:
            pytest.skip("integration/operator/deploy: " + a.stderr()[-300:])
        assert not metric(sandbox, "otelcol_receiver_accepted_profile_samples")
    finally:
        a.close()
        gateway.close()
        sandbox.close()


def test_the_certificate_is_for_the_service(cluster, secrets, tmp_path):
    files = secret_files(cluster, secrets)
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    check = ["openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", tmp_path / "ca.crt"]
    for host, good in (("gateway.pyroscope.svc", True), ("gateway.pyroscope.svc.cluster.local", True),
                       ("pyroscope.pyroscope.svc", False)):
        done = subprocess.run([*check, "-verify_hostname", host, tmp_path / "tls.crt"], capture_output=True,
                              check=False)
        assert (done.returncode == 0) == good, (host, done.stderr)
    assert b"PRIVATE KEY" not in files["ca.crt"] + files["tls.crt"]
