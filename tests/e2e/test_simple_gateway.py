# SPDX-License-Identifier: Apache-2.0
"""The gateway of overlay "pyroscope" in the cluster: a real Collector, to which the agents send over gRPC with TLS.
The test builds the Collector's image and makes it print the profiles instead of sending them on."""
import json
import subprocess

import pytest

from cluster import ROOT, SCRIPT, is_ready, run, wait_for

PRINTING = {"exporters": {"debug": {"verbosity": "detailed"}},
            "service": {"pipelines": {"profiles": {"exporters": ["debug"]}}}}
PATCH = [{"op": "replace", "path": "/spec/replicas", "value": 1},
         {"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "kiln.local/collector:1"},
         {"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--config=/etc/gateway/printing.yaml"}]


@pytest.fixture(scope="module")
def gateway(cluster):
    built = subprocess.run([ROOT / "hack/collector", "build"], capture_output=True, text=True)
    if built.returncode:
        pytest.skip(f"no Collector: {built.stderr.strip()[-300:]}")
    run(ROOT / "hack/node.d/image.py", "--name", "kiln.local/collector:1", "--output", cluster.dir + "/collector.tar",
        "--entrypoint", "/otelcol", built.stdout.strip() + "=/otelcol")
    run(SCRIPT, "import", cluster.node_dir, cluster.dir + "/collector.tar")
    component = ROOT / "kustomize/components/pyroscope"
    with open(cluster.dir + "/kustomization.yaml", "w", encoding="utf-8") as f:
        json.dump({"configMapGenerator": [{"name": "gateway", "namespace": "pyroscope",
                                           "files": ["collector.yaml", "printing.yaml"]}],
                   "resources": ["namespace.yaml", "gateway.yaml"],
                   "patches": [{"target": {"kind": "Deployment"}, "patch": json.dumps(PATCH)}]}, f)
    with open(cluster.dir + "/printing.yaml", "w", encoding="utf-8") as f:
        json.dump(PRINTING, f)
    for name, source in (("namespace", "namespace"), ("gateway", "gateway"), ("collector", "config/collector")):
        with open(f"{cluster.dir}/{name}.yaml", "w", encoding="utf-8") as f:
            f.write((component / f"{source}.yaml").read_text())
    cluster.kubectl("apply", "-f", component / "namespace.yaml")
    cluster.kubectl("apply", "-f", "-", input=run(ROOT / "hack/gateway-certs"))
    cluster.kubectl("apply", "-k", cluster.dir)
    wait_for("the gateway", lambda: is_ready(cluster.get("pods", "-n", "pyroscope")["items"][0]))
    yield cluster
    cluster.kubectl("delete", "namespace", "pyroscope", "--wait=false")
    cluster.kubectl("delete", "secret", "-n", "kiln-system", "kiln-gateway-ca")


def test_the_collector_in_the_cluster_receives_over_tls(gateway):
    agent = wait_for("the agent", gateway.agent)["metadata"]["uid"]
    before = gateway.get("cpc", "cluster")["spec"]["destinations"]
    gateway.patch({"spec": {"destinations": before + [{"name": "gateway", "otlp": {
        "endpoint": "gateway.pyroscope.svc:4317", "protoGeneration": "G6",
        "tls": {"mode": "Verify", "caSecretRef": {"name": "kiln-gateway-ca", "key": "ca.crt"}}}}]}})
    uid, container = gateway.pod_ids("busy")
    text = wait_for("the busy pod's profiles at the gateway",
                    lambda: (t := gateway.kubectl("logs", "-n", "pyroscope", "deploy/gateway")) and container in t and t,
                    interval=1)
    for line in (f"-> container.id: Str({container})", f"-> k8s.pod.uid: Str({uid})", "-> k8s.pod.name: Str(busy)",
                 "-> k8s.namespace.name: Str(shop)", "-> k8s.container.name: Str(busy)", "busy_leaf"):
        assert line in text, line
    gateway.patch({"spec": {"destinations": before}})
    wait_for("the agent without it", lambda: (a := gateway.agent()) and a["metadata"]["uid"] != agent)
