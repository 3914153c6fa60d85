# SPDX-License-Identifier: Apache-2.0
"""deploy/compose.yaml, checked without Docker: its images are those of the cluster, the files that it mounts are in the tree,
and the programs accept the configurations that it mounts."""

import re
import subprocess

import pytest

from conftest import COMPONENT, OVERLAYS, ROOT, check_agent, kind
from parts import free_port, wait_until

DEPLOY = ROOT / "deploy"
SERVICES = {"agent", "collector", "pyroscope", "grafana"}
# Service keys of the Compose specification; Docker rejects unknown ones.
KNOWN = {"image", "build", "pid", "cgroup", "uts", "cap_drop", "cap_add", "security_opt", "read_only", "volumes",
         "depends_on", "mem_limit", "restart", "command", "environment", "ports"}


@pytest.fixture(scope="module")
def compose(cluster):
    return cluster.parse((DEPLOY / "compose.yaml").read_text())


@pytest.fixture(scope="module")
def pods(cluster):
    """{workload: its first container} of overlay pyroscope."""
    items = cluster.build(OVERLAYS / "pyroscope")
    return {i["metadata"]["name"]: i["spec"]["template"]["spec"]["containers"][0]
            for what in ("Deployment", "StatefulSet") for i in kind(items, what)}


def test_the_shape(compose):
    assert set(compose) == {"name", "services", "volumes"} and set(compose["services"]) == SERVICES
    for name, service in compose["services"].items():
        assert set(service) <= KNOWN, name
        assert set(service.get("depends_on", [])) <= SERVICES
        assert service["restart"] == "unless-stopped" and re.fullmatch(r"\d+[mg]", service["mem_limit"])
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), (name, port)


def test_what_is_mounted_is_there(compose):
    named = set()
    for name, service in compose["services"].items():
        for volume in service["volumes"]:
            source, target, *mode = volume.split(":")
            assert target.startswith("/"), volume
            if source.startswith("."):
                assert (DEPLOY / source).is_file() and mode == ["ro"], (name, volume)
            elif source.startswith("/"):
                assert mode == ["ro"], volume
            else:
                named.add(source)
    assert named == set(compose["volumes"])


def test_the_agent_is_given_its_configuration(compose):
    agent = compose["services"]["agent"]
    option, path = agent["command"]
    assert option == "--config" and any(v.split(":")[1] == path for v in agent["volumes"])


def test_the_agent_has_what_it_needs(compose, cluster):
    """The agent has the same capabilities as in kiln-agent.service and in the operator's DaemonSet."""
    agent = compose["services"]["agent"]
    unit = re.search(r"^CapabilityBoundingSet=(.*)$", (DEPLOY / "kiln-agent.service").read_text(), re.M).group(1)
    source = re.sub(r'"\s+"', "", (ROOT / "operator/render/daemon_set.c").read_text())
    rendered = re.search(r"'add': \[(.*?)\]", source).group(1)
    want = {c.removeprefix("CAP_") for c in unit.split()}
    assert set(agent["cap_add"]) == want == set(re.findall(r"\w+", rendered)) and agent["cap_drop"] == ["ALL"]
    assert agent["pid"] == agent["cgroup"] == agent["uts"] == "host" and agent["read_only"] is True
    assert {"seccomp=unconfined", "apparmor=unconfined"} <= set(agent["security_opt"])
    mounted = [v.split(":")[1] for v in agent["volumes"]]
    assert {"/sys/fs/cgroup", "/var/lib/kiln", "/etc/kiln/agent.yaml"} == set(mounted)
    assert (DEPLOY / agent["build"]["context"] / agent["build"]["dockerfile"]).resolve() == DEPLOY / "agent.Dockerfile"
    version = re.search(r"^project\(kiln VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text(), re.M).group(1)
    assert agent["image"] == f"kiln-agent:{version}"


def test_the_rest_is_as_in_the_cluster(compose, pods):
    services = compose["services"]
    for name, pod in (("collector", "gateway"), ("pyroscope", "pyroscope"), ("grafana", "grafana")):
        assert services[name]["image"] == pods[pod]["image"]
        environment = {e["name"]: e["value"] for e in pods[pod].get("env", [])}
        assert services[name].get("environment", {}) == environment
    assert services["pyroscope"]["command"] == pods["pyroscope"]["args"]
    assert services["collector"]["command"][-1] == pods["gateway"]["args"][-1]


def test_the_agent_takes_its_configuration(cluster):
    check_agent(DEPLOY / "compose-agent.yaml")
    config = cluster.parse((DEPLOY / "compose-agent.yaml").read_text())
    gateway = cluster.parse((COMPONENT / "config/collector.yaml").read_text())
    host, port = config["exporters"]["otlp_grpc"]["endpoint"].split(":")
    assert host in SERVICES and gateway["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"] == f":{port}"


def start_collector(binary, files, tmp_path):
    """Runs a Collector with FILES, on other ports, until it is ready or has ended; its log."""
    (tmp_path / "here.yaml").write_text(f"""
receivers: {{otlp: {{protocols: {{grpc: {{endpoint: "127.0.0.1:{free_port()}"}}}}}}}}
extensions: {{health_check: {{endpoint: "127.0.0.1:{free_port()}"}}}}
service: {{telemetry: {{metrics: {{level: none, readers: []}}}}}}
""")
    log_path = tmp_path / "log"
    with open(log_path, "wb") as log:
        process = subprocess.Popen([binary, "--feature-gates=service.profilesSupport",
                                    *(f"--config={f}" for f in [*files, tmp_path / "here.yaml"])],
                                   stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        wait_until("it is ready or ends",
                   lambda: "Everything is ready" in log_path.read_text() or process.poll() is not None)
        return log_path.read_text()
    finally:
        process.kill()
        process.wait()


def test_the_collector_takes_its_configuration(collector, compose, tmp_path):
    """The Collector starts with both files, in the command's order; the second one removes the need of a certificate."""
    service = compose["services"]["collector"]
    mounted = {v.split(":")[1]: (DEPLOY / v.split(":")[0]).resolve() for v in service["volumes"]}
    files = [mounted[a.removeprefix("--config=")] for a in service["command"] if "--config=" in a]
    assert len(files) == 2
    assert "Everything is ready" in start_collector(collector, files, tmp_path)
    alone = start_collector(collector, files[:1], tmp_path)
    assert "Everything is ready" not in alone and "/etc/gateway-tls/tls.crt" in alone
