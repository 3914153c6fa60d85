# SPDX-License-Identifier: Apache-2.0
"""When the Secret of a destination (the cluster's or a tenant's) changes, the agent's requests have the new value within
seconds, without a restart. A tenant's destination that is unreachable shows in the tenant's config only."""
import base64
import json
import os
import subprocess
import sys
import time

import pytest

from cluster import NAMESPACE, ROOT, SCRIPT, wait_for

ADDRESS, MAIN, MINE, NOBODY = "10.244.77.1", 4318, 4319, 4320  # hack/node's bridge; nobody listens on the last port
REACHES_WITHIN = 5  # seconds; a window lasts one
LONG = os.environ.get("KILN_LONG") == "1"
ROTATIONS, QUIET = (5, 40) if LONG else (2, 15)
TENANT_SECRETS = ROOT / "kustomize/components/tenant-secrets/cluster_role.yaml"


def otlp(name, port, secret):
    return {"name": name, "otlp": {"endpoint": f"http://{ADDRESS}:{port}", "protocol": "HTTP", "tls": {"mode": "Plaintext"},
                                   "headersFrom": [{"name": "x-token", "secretRef": {"name": secret, "key": "token"}}]}}


class Receiver:
    """tests/e2e/receiver.py, run in the node's network namespace."""

    def __init__(self, cluster, path):
        self.path = path
        with open(path, "wb") as out:
            self.process = subprocess.Popen([SCRIPT, "run", cluster.node_dir, "--", sys.executable,
                                             ROOT / "tests/e2e/receiver.py", "3600", ADDRESS, str(MAIN), str(MINE)],
                                            stdout=out, stderr=subprocess.STDOUT)

    def requests(self, port):
        """[(time, token)] of the requests to PORT."""
        with open(self.path, encoding="utf-8") as f:
            lines = [line.split() for line in f.read().splitlines()]
        return [(float(at), value) for at, to, value in lines if to == str(port)]

    def first(self, port, token):
        """The time (CLOCK_MONOTONIC) of the first request with TOKEN to PORT, or None."""
        return next((at for at, value in self.requests(port) if value == token), None)

    def count(self, port):
        return len(self.requests(port))


@pytest.fixture(scope="module")
def receiver(cluster, tmp_path_factory):
    wait_for("the agent", cluster.agent)
    receiver = Receiver(cluster, tmp_path_factory.mktemp("receiver") / "requests")
    spec = cluster.get("cpc", "cluster")["spec"]
    # The setup that docs/policy.md describes.
    cluster.kubectl("apply", "-f", TENANT_SECRETS)
    cluster.kubectl("create", "rolebinding", "-n", "shop", "kiln-stream-secrets",
                    "--clusterrole=kiln-operator-tenant-secrets", f"--serviceaccount={NAMESPACE}:kiln-stream")
    put_secret(cluster, NAMESPACE, "backend", "main-0")
    put_secret(cluster, "shop", "ours", "mine-0")
    cluster.patch({"spec": {"destinations": spec["destinations"] + [otlp("main", MAIN, "backend")],
                            "agent": {"reportIntervalSeconds": 1},
                            "guardrails": {"tenantDestinations": "SameNamespaceSecret"}}})
    wait_for("the tenant's config", lambda: cluster.apply({
        "apiVersion": "profiling.kiln.dev/v1alpha1", "kind": "ProfilingConfig",
        "metadata": {"name": "own", "namespace": "shop"},
        "spec": {"destinations": [otlp("mine", MINE, "ours")],
                 "profile": {"mode": "Enabled", "destinationRefs": ["mine", "main"]}}}) or True)
    yield receiver
    cluster.kubectl("delete", "pcfg", "-n", "shop", "own")
    cluster.patch({"spec": {"destinations": spec["destinations"],
                            "agent": {"reportIntervalSeconds": 5}, "guardrails": {"tenantDestinations": None}}})
    receiver.process.kill()
    receiver.process.wait()
    cluster.kubectl("delete", "rolebinding", "-n", "shop", "kiln-stream-secrets")
    cluster.kubectl("delete", "-f", TENANT_SECRETS)
    cluster.kubectl("delete", "secret", "-n", NAMESPACE, "backend")
    cluster.kubectl("delete", "secret", "-n", "shop", "ours")


def put_secret(cluster, namespace, name, token):
    cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace},
                   "data": {"token": base64.b64encode(token.encode()).decode()}})


@pytest.mark.parametrize("namespace, secret, port, tag", [(NAMESPACE, "backend", MAIN, "main"), ("shop", "ours", MINE, "mine")])
def test_a_secrets_new_value_reaches_what_is_sent(cluster, receiver, namespace, secret, port, tag):
    wait_for("requests with the first value", lambda: receiver.first(port, f"{tag}-0"), interval=0.1)
    before = wait_for("the agent", cluster.agent)["status"]["containerStatuses"][0]["containerID"]
    took = []
    for i in range(1, ROTATIONS + 1):
        since = time.monotonic()
        put_secret(cluster, namespace, secret, f"{tag}-{i}")
        at = wait_for("requests with the new value", lambda: receiver.first(port, f"{tag}-{i}"), interval=0.1)
        took.append(at - since)
        time.sleep(i / 3)  # so that the change falls into different phases of the operator's polling
    cluster.times.append((f"Secret of {tag} changed: in a request (longest of {ROTATIONS})", max(took)))
    assert max(took) <= REACHES_WITHIN, took
    assert cluster.agent()["status"]["containerStatuses"][0]["containerID"] == before


def conditions(thing):
    """{type: (status, reason)} of an object's conditions, without their times."""
    return {c["type"]: (c["status"], c["reason"]) for c in thing["status"].get("conditions", [])}


def test_a_tenants_broken_endpoint_is_the_tenants_own_business(cluster, receiver):
    cluster.apply({"apiVersion": "profiling.kiln.dev/v1alpha1", "kind": "ProfilingConfig",
                   "metadata": {"name": "other", "namespace": "default"}, "spec": {"profile": {"mode": "Enabled"}}})

    def others():
        return [conditions(x) for x in (cluster.get("cpc", "cluster"), cluster.get("profilingnode", "kiln-node"),
                                        cluster.get("pcfg", "-n", "default", "other"))]

    def own():
        return conditions(cluster.get("pcfg", "-n", "shop", "own"))

    try:
        wait_for("ready", lambda: all(c["Ready"][0] == "True" for c in others()) and own()["Ready"][0] == "True")
        before = others()
        cluster.kubectl("patch", "pcfg", "-n", "shop", "own", "--type=merge", "-p",
                        json.dumps({"spec": {"destinations": [otlp("mine", NOBODY, "ours")]}}))
        since = time.monotonic()
        wait_for("the tenant's condition", lambda: own().get("Exporting", ("",))[0] == "False")
        cluster.took("a tenant's endpoint is dead: the config says so", since)
        while time.monotonic() < since + QUIET:
            assert others() == before
            time.sleep(1)
        # The cluster's destination still receives samples.
        count = receiver.count(MAIN)
        wait_for("requests to the cluster's destination", lambda: receiver.count(MAIN) > count)
        cluster.kubectl("patch", "pcfg", "-n", "shop", "own", "--type=merge", "-p",
                        json.dumps({"spec": {"destinations": [otlp("mine", MINE, "ours")]}}))
        wait_for("the tenant's condition", lambda: own().get("Exporting", ("True",))[0] == "True")
    finally:
        cluster.kubectl("delete", "pcfg", "-n", "default", "other")
