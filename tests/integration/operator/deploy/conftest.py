# SPDX-License-Identifier: Apache-2.0
"""Fixtures: an API server, the Collector, and the manifests that kustomize builds from the overlays."""

import base64
import functools
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[4]
for part in ("tests/integration/lib", "tests/integration/agent"):
    sys.path.insert(0, str(ROOT / part))
import envtest  # noqa: E402
from kiln import agent as kiln  # noqa: E402

# checkov takes a minute to install.
collect_ignore = [] if os.environ.get("KILN_MATRIX") == "1" else ["test_checkov.py"]
OVERLAYS = ROOT / "kustomize/overlays"
COMPONENT = ROOT / "kustomize/components/pyroscope"
# kubectl always sends a PodDisruptionBudget's selector ("patchStrategy: replace") and reports a change that is none.
ALWAYS_SENT = re.compile(r"poddisruptionbudget\.policy/")
DUMP = os.environ.get("RENDER_DUMP", str(ROOT / "build/dev/tests/render_dump"))


class Cluster(envtest.EnvTest):
    """An EnvTest that also parses YAML with kubectl, whose parser is Go's, as Docker Compose's is."""

    @functools.cache
    def parse(self, text):
        """The YAML mapping TEXT as a dictionary."""
        wrapped = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: parsed}\nparsed:\n" + "".join(
            f"  {line}\n" for line in text.splitlines())
        done = self.kubectl("create", "--dry-run=client", "--validate=false", "-o", "json", "-f", "-", input=wrapped)
        return json.loads(done)["parsed"]

    @functools.cache
    def manifest(self, folder):
        """The manifest that kustomize builds from FOLDER, as text."""
        return self.kubectl("kustomize", folder)

    @functools.cache
    def build(self, folder):
        """The same manifest as a list of objects. It is cached: callers must not change it."""
        text = self.manifest(folder)
        done = self.kubectl("create", "--dry-run=client", "--validate=false", "-o", "json", "-f", "-",
                            input="apiVersion: v1\nkind: List\nitems:\n" + "".join(
                                "- " + "  ".join(item.strip("\n").splitlines(keepends=True)) + "\n"
                                for item in text.split("\n---\n")))
        return objects(done)


def objects(text):
    """The objects in a stream of JSON values; a List is replaced by its items."""
    decoder, at, found = json.JSONDecoder(), 0, []
    text = text.strip()
    while at < len(text):
        item, end = decoder.raw_decode(text, at)
        found += item["items"] if item["kind"] == "List" else [item]
        at = end + len(text[end:]) - len(text[end:].lstrip())
    return found


def kind(items, wanted, name=None):
    return [i for i in items if i["kind"] == wanted and name in (None, i["metadata"]["name"])]


def first_config(cluster, items):
    """The ClusterProfilingConfig in the manifests ITEMS of an overlay."""
    config, = kind(items, "ConfigMap", "kiln-first-config")
    return cluster.parse(config["data"]["cluster.yaml"])


def render(cluster, items, directory, agent=()):
    """The objects that the operator renders from first_config(), with spec.agent updated from AGENT. The CRDs must exist."""
    config, = kind(items, "ConfigMap", "kiln-first-config")
    taken = json.loads(cluster.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-",
                                       input=config["data"]["cluster.yaml"]))
    taken["spec"].setdefault("agent", {}).update(agent)
    taken["metadata"].setdefault("uid", "00000000-0000-4000-8000-000000000000")
    (directory / "cluster.json").write_text(json.dumps(taken))
    done = subprocess.run([DUMP, directory / "cluster.json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return objects(done.stdout)


def secret_files(cluster, text):
    """{key: decoded value} of all Secrets in the manifest TEXT."""
    return {key: base64.b64decode(value) for part in text.split("\n---\n")
            for key, value in cluster.parse(part)["data"].items()}


def check_agent(config):
    """The real agent accepts CONFIG with --check. Exit code 3 means that only this machine lacks something."""
    done = subprocess.run([kiln.binary(), "--check", "--config", config], capture_output=True, text=True, check=False,
                          env={**os.environ, "NODE_NAME": "node"})
    assert done.returncode in (0, 3) and "no effect" not in done.stderr, done.stderr


def versions(cluster, folder):
    items = json.loads(cluster.kubectl("get", "-f", "-", "-o", "json", input=cluster.manifest(folder)))["items"]
    return {i["metadata"]["uid"]: i["metadata"]["resourceVersion"] for i in items}


def apply_twice(cluster, folder):
    first = cluster.kubectl("apply", "-f", "-", input=cluster.manifest(folder), check=False)
    assert first.returncode == 0 and "Warning" not in first.stderr, first.stderr
    before = versions(cluster, folder)
    second = cluster.kubectl("apply", "-f", "-", input=cluster.manifest(folder)).splitlines()
    assert [line for line in second if not line.endswith(" unchanged") and not ALWAYS_SENT.match(line)] == []
    assert versions(cluster, folder) == before
    return first.stdout


@pytest.fixture(scope="session")
def cluster():
    try:
        envtest.build()
    except RuntimeError as error:
        pytest.skip(f"integration/operator/deploy: {error}")
    with Cluster() as running:
        yield running


@pytest.fixture(scope="session")
def installed(cluster):
    """Applies overlay pyroscope twice; the output of the first apply."""
    return apply_twice(cluster, OVERLAYS / "pyroscope")


@pytest.fixture(scope="session")
def collector():
    found = subprocess.run([ROOT / "hack/collector", "build"], capture_output=True, text=True, check=False)
    if found.returncode:
        pytest.skip("integration/operator/deploy: no Collector: " + found.stderr.strip()[-300:])
    return found.stdout.strip()


@pytest.fixture(scope="session")
def secrets():
    """What hack/gateway-certs prints."""
    done = subprocess.run([ROOT / "hack/gateway-certs", "--days", "2"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
