# SPDX-License-Identifier: Apache-2.0
"""checkov finds nothing in the manifests and Dockerfiles but the findings in EXCEPTIONS, each with its reason."""

import json
import re
import subprocess

import pytest

from conftest import OVERLAYS, ROOT, kind, render

OURS = r"(Deployment|DaemonSet)\.kiln-system\."
# {check: {pattern of resources: reason}}
EXCEPTIONS = {
    "CKV_DOCKER_2": {r"/(agent|operator)\.Dockerfile": "Kubernetes and systemd ask /healthz; the images have no program that could"},
    "CKV_DOCKER_3": {r"/agent\.Dockerfile": "root with six capabilities: BPF and other processes' memory"},
    "CKV_K8S_8": {r"Deployment\.pyroscope\.grafana": "it is not restarted while it migrates its database; ready is asked"},
    "CKV_K8S_11": {r".*": "a CPU limit makes samples late; production sets those of the operator"},
    "CKV_K8S_15": {r".*": "tags name one version: Always makes the registry a part of each start"},
    "CKV_K8S_17": {OURS + "kiln-agent": "it profiles all processes of the node"},
    "CKV_K8S_23": {OURS + "kiln-agent": "root with six capabilities, as in the Dockerfile"},
    "CKV_K8S_25": {OURS + "kiln-agent": "it adds six capabilities and drops all others"},
    "CKV_K8S_29": {OURS + "kiln-agent": "its container has one; a pod's would be the same again"},
    "CKV_K8S_31": {OURS + "kiln-agent": "runtimes' default seccomp profiles refuse bpf() and perf_event_open()"},
    "CKV_K8S_38": {OURS: "the operator talks to the API server"},
    "CKV_K8S_40": {r".*": "Grafana's image has its user, 472; the agent is root"},
    "CKV_K8S_43": {r".*": "a digest is of one registry; the chart takes one (image.digest)"},
    "CKV_K8S_158": {r"Role\.kiln-system\.kiln-operator": "it binds the agents to one Role that holds less than its own"},
}


@pytest.fixture(scope="module")
def findings(cluster, installed, tmp_path_factory):
    """[(check, resource)] of overlays production and pyroscope, the objects rendered from them, and the Dockerfiles."""
    done = subprocess.run([ROOT / "hack/lib/pypi.sh", "checkov"], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("no checkov: " + done.stderr.strip()[-300:])
    directory = tmp_path_factory.mktemp("checkov")
    for name in ("production", "pyroscope"):
        (directory / f"{name}.yaml").write_text(cluster.manifest(OVERLAYS / name))
    made = render(cluster, cluster.build(OVERLAYS / "production"), directory)
    assert kind(made, "DaemonSet")
    (directory / "agents.yaml").write_text("\n---\n".join(map(json.dumps, made)))
    for file in (ROOT / "deploy").glob("*.Dockerfile"):
        (directory / file.name).write_text(file.read_text())
    out = subprocess.run([done.stdout.strip(), "-d", directory, "--framework", "kubernetes", "dockerfile", "--compact",
                          "--quiet", "--skip-download", "--output", "json"], capture_output=True, text=True, check=False)
    reports = json.loads(out.stdout)
    assert {r["check_type"] for r in reports} == {"kubernetes", "dockerfile"} and not any(
        r["summary"]["parsing_errors"] for r in reports)
    assert sum(r["summary"]["passed"] for r in reports) > 500
    return sorted({(f["check_id"], f["resource"]) for r in reports for f in r["results"]["failed_checks"]})


def excused(check, resource):
    return any(re.match(pattern, resource) for pattern in EXCEPTIONS.get(check, {}))


def test_nothing_is_found_that_has_no_reason(findings):
    assert [f for f in findings if not excused(*f)] == []


def test_every_exception_is_needed(findings):
    assert [(check, pattern) for check, rows in EXCEPTIONS.items() for pattern in rows
            if not any(c == check and re.match(pattern, r) for c, r in findings)] == []
