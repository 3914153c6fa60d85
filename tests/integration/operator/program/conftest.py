# SPDX-License-Identifier: Apache-2.0
"""Fixtures: one API server with Kiln installed by `kubectl apply -k`, and the operator's program, which authenticates with
its ServiceAccount's token: requests that the shipped roles do not allow fail here, too."""

import json
import os
import pathlib
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[4]
sys.path.insert(0, str(ROOT / "tests/integration/lib"))
import envtest  # noqa: E402
from ports import free_port  # noqa: E402

OPERATOR = os.environ.get("KILN_OPERATOR", str(ROOT / "build/dev/bin/kiln-operator"))
NAMESPACE = "kiln-system"
USER = f"system:serviceaccount:{NAMESPACE}:kiln-operator"
BOTH_ROLES = [("clusterrolebinding", "both-roles"), ("rolebinding", "both-roles"),
              ("rolebinding", "both-roles-destinations")]
WAIT = 240  # seconds; the longest wait for an expected event


def wait_until(what, condition, timeout=WAIT):
    """Waits until CONDITION() is true; its value."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {what} after {timeout} s")
        time.sleep(0.02)


def thing(kind, name, spec, namespace="default"):
    meta = {"name": name, **({"namespace": namespace} if kind == "ProfilingConfig" else {})}
    return {"apiVersion": "profiling.kiln.dev/v1alpha1", "kind": kind, "metadata": meta, "spec": spec}


def pod(namespace, name, node, labels=None, annotations=None):
    return {"apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": namespace, "name": name, "labels": labels or {}, "annotations": annotations or {}},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "app:1"}]}}


class Operator:
    """A replica of the operator, with the account of KUBECONFIG; its output goes to a file."""

    def __init__(self, kubeconfig, directory, name="operator-0", *options, env=None):
        self.health, self.metrics_port, self.name = free_port(), free_port(), name
        self.log_path = directory / f"{name}-{self.health}.log"
        image = [] if "--role=stream" in options else ["--agent-image", "kiln-agent:test"]
        command = [OPERATOR, "--kubeconfig", kubeconfig, "--namespace", NAMESPACE, *image,
                   "--health-address", f"127.0.0.1:{self.health}", "--metrics-address",
                   f"127.0.0.1:{self.metrics_port}", *options]
        with open(self.log_path, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            env={**os.environ, "POD_NAME": name, **(env or {})})

    @property
    def log(self):
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def _get(self, port, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()
        except OSError as e:
            return 0, str(e)

    def ready(self):
        assert self.process.poll() is None, f"the operator ended: {self.log[-3000:]}"
        return self._get(self.health, "/readyz")[0] == 200

    def metrics(self):
        return self._get(self.metrics_port, "/metrics")[1]

    def metric(self, name, **labels):
        """The sum of the metric over all series that have LABELS."""
        total = 0.0
        for line in self.metrics().splitlines():
            match = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line)
            if match and match[1] == name and all(f'{k}="{v}"' in (match[2] or "") for k, v in labels.items()):
                total += float(match[3])
        return total

    def leads(self):
        return self.metric("leader_election_master_status") == 1

    def stop(self, sig=None):
        """Sends SIG (SIGTERM) and waits; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(sig or 15)
        try:
            return self.process.wait(WAIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


class Cluster(envtest.EnvTest):
    def account(self, name, directory):
        """The path of a kubeconfig for a ServiceAccount, whose token is in a file, as in a pod."""
        token = directory / f"{name}.token"
        token.write_text(self.token(NAMESPACE, name), encoding="utf-8")
        path = directory / f"{name}.kubeconfig"
        path.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "x",
            "clusters": [{"name": "x", "cluster": {"server": self.url, "certificate-authority": self.ca}}],
            "users": [{"name": "x", "user": {"tokenFile": str(token)}}],
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x", "namespace": NAMESPACE}}]}),
            encoding="utf-8")
        return str(path)

    def object(self, kind, name, namespace=NAMESPACE):
        """The object, or None when it does not exist."""
        done = self.kubectl("get", kind, name, "-n", namespace, "-o", "json", "--ignore-not-found")
        return json.loads(done) if done.strip() else None

    def patch(self, kind, name, body, *options, namespace=NAMESPACE):
        self.kubectl("patch", kind, name, "-n", namespace, "--type=merge", "-p", json.dumps(body), *options)

    def condition(self, kind, name, condition, namespace=NAMESPACE):
        """(status, reason, message) of a condition; None until it has been written for the current generation."""
        thing = self.object(kind, name, namespace)
        for c in (thing or {}).get("status", {}).get("conditions", []):
            if c["type"] == condition and c["observedGeneration"] == thing["metadata"]["generation"]:
                return c["status"], c["reason"], c["message"]
        return None

    def roll_out(self, nodes=3, ready=None):
        """Writes the status of the DaemonSets, since no DaemonSet controller runs here."""
        for ds in self.get("daemonsets", "-n", NAMESPACE)["items"]:
            count = nodes if ready is None else ready
            status = {"desiredNumberScheduled": nodes, "currentNumberScheduled": nodes, "numberMisscheduled": 0,
                      "updatedNumberScheduled": count, "numberReady": count, "numberAvailable": count,
                      "observedGeneration": ds["metadata"]["generation"]}
            try:
                self.patch("daemonset", ds["metadata"]["name"], {"status": status}, "--subresource=status")
            except envtest.Failed as e:
                if "NotFound" not in e.err:  # the operator may have deleted the DaemonSet
                    raise

    def reset(self, spec):
        """Replaces the whole spec of the cluster's config."""
        self.request("/apis/profiling.kiln.dev/v1alpha1/clusterprofilingconfigs/cluster", "PUT", {
            "apiVersion": "profiling.kiln.dev/v1alpha1", "kind": "ClusterProfilingConfig",
            "metadata": {"name": "cluster", "resourceVersion": self.object("cpc", "cluster")["metadata"][
                "resourceVersion"]}, "spec": spec})


@pytest.fixture(scope="session")
def cluster():
    try:
        envtest.build()
    except RuntimeError as e:
        pytest.skip(str(e))
    with Cluster(audit=True) as c:
        c.first_apply = c.kubectl("apply", "-k", str(ROOT / "kustomize/overlays/default"))
        # A program without --role has both roles, and needs the rights of both.
        both = f"--serviceaccount={NAMESPACE}:kiln-operator"
        c.kubectl("create", "clusterrolebinding", "both-roles", "--clusterrole=kiln-stream", both)
        c.kubectl("create", "rolebinding", "both-roles", "-n", NAMESPACE, "--role=kiln-stream", both)
        c.kubectl("create", "rolebinding", "both-roles-destinations", "-n", NAMESPACE,
                  "--role=kiln-stream-destinations", both)
        yield c


@pytest.fixture(scope="session")
def account(cluster, tmp_path_factory):
    return cluster.account("kiln-operator", tmp_path_factory.mktemp("account"))


@pytest.fixture
def start(cluster, account, tmp_path):
    """start(name, *options): a replica that is stopped after the test."""
    started = []

    def start(name="operator-0", *options, kubeconfig=None, env=None):
        started.append(Operator(kubeconfig or account, tmp_path, name, *options, env=env))
        return started[-1]

    yield start
    for operator in started:
        if operator.process.poll() is None:
            assert operator.stop() == 0, operator.log[-3000:]
        elif operator.process.returncode:
            print(f"{operator.name} ended with status {operator.process.returncode}: {operator.log[-3000:]}")
        assert operator.process.returncode in (0, 1, -9), operator.log[-3000:]  # 1: it lost the lease
        assert "ERROR: AddressSanitizer" not in operator.log and "runtime error" not in operator.log
        assert "WARNING: ThreadSanitizer" not in operator.log, operator.log[-5000:]


@pytest.fixture
def operator(cluster, start):
    """One replica, which leads, and a config that is rolled out."""
    op = start("operator-0")
    wait_until("lead", op.leads)
    return set_up(cluster, op)


@pytest.fixture
def lone_operator(cluster, start):
    """As operator, but without a lease, for tests that load the API server so much that a slow machine loses the lease."""
    return set_up(cluster, start("operator-0", "--leader-elect=false"))


def set_up(cluster, op):
    wait_until("readiness", op.ready)
    wait_until("a first config", lambda: cluster.object("cpc", "cluster"))
    cluster.reset({"destinations": [{"name": "logs", "text": {}}]})
    settle(cluster)
    return op


def settle(cluster):
    """Waits until the config is accepted and rendered, and rolls it out."""
    wait_until("acceptance", lambda: (cluster.condition("cpc", "cluster", "Accepted") or [""])[0] == "True")
    wait_until("a DaemonSet", lambda: cluster.object("daemonset", "kiln-agent"))

    def rolled_out():
        cluster.roll_out()
        return (cluster.condition("cpc", "cluster", "Ready") or [""])[0] == "True"

    wait_until("Ready", rolled_out)
