# SPDX-License-Identifier: Apache-2.0
"""One API server with the CRDs and admission policies of crds/, and a client that also returns warnings."""

import http.client
import json
import os
import pathlib
import ssl
import sys
import time
import urllib.parse

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[4]
sys.path.insert(0, str(ROOT / "tests/integration/lib"))
import envtest  # noqa: E402

GROUP = "profiling.kiln.dev"
API = GROUP + "/v1alpha1"
PLURAL = {"ClusterProfilingConfig": "clusterprofilingconfigs", "ProfilingConfig": "profilingconfigs",
          "ProfilingNode": "profilingnodes"}
# Seconds; the longest wait for an expected event. Admission looks for new kinds every 30 s.
WAIT = 120


class Answer:
    """Status code, decoded body, and the texts of the Warning headers."""

    def __init__(self, response):
        self.status = response.status
        self.body = json.loads(response.read() or "{}")
        # A Warning header reads: 299 - "text", in which quotes and backslashes are escaped.
        self.warnings = [value.split(" ", 2)[2][1:-1].replace('\\"', '"').replace("\\\\", "\\")
                         for key, value in response.getheaders() if key.lower() == "warning"]

    @property
    def message(self):
        return self.body.get("message", "")


class Client:
    """The admin over one connection; can impersonate any user."""

    def __init__(self, cluster):
        self.cluster = cluster
        tls = ssl.create_default_context(cafile=cluster.ca)
        tls.load_cert_chain(os.path.join(cluster.dir, "pki/admin.crt"), os.path.join(cluster.dir, "pki/admin.key"))
        self.http = http.client.HTTPSConnection(urllib.parse.urlsplit(cluster.url).netloc, context=tls, timeout=30)

    def request(self, method, path, body=None, user=None, content="application/json", **query):
        if query:
            path += "?" + urllib.parse.urlencode(query)
        headers = {"Content-Type": content, **({"Impersonate-User": user} if user else {})}
        self.http.request(method, path, None if body is None else json.dumps(body), headers)
        return Answer(self.http.getresponse())

    @staticmethod
    def path(thing, name=True, status=False):
        meta, namespaced = thing["metadata"], thing["kind"] == "ProfilingConfig"
        return (f"/apis/{API}" + (f"/namespaces/{meta['namespace']}" if namespaced else "") +
                f"/{PLURAL[thing['kind']]}" + (f"/{meta['name']}" if name else "") + ("/status" if status else ""))

    def create(self, thing, user=None, **query):
        """Creates THING; unknown fields are errors, as with kubectl."""
        return self.request("POST", self.path(thing, name=False), thing, user, fieldValidation="Strict", **query)

    def update(self, thing, user=None, status=False, **query):
        return self.request("PUT", self.path(thing, status=status), thing, user, fieldValidation="Strict", **query)

    def patch(self, thing, change, user=None, status=False):
        return self.request("PATCH", self.path(thing, status=status), change, user,
                            content="application/merge-patch+json")

    def delete(self, thing):
        return self.request("DELETE", self.path(thing))


def thing(kind, name, spec, namespace="default"):
    meta = {"name": name, **({"namespace": namespace} if kind == "ProfilingConfig" else {})}
    return {"apiVersion": API, "kind": kind, "metadata": meta, "spec": spec}


def wait_until(what, check):
    end = time.monotonic() + WAIT
    while time.monotonic() < end:
        result = check()
        if result:
            return result
        time.sleep(0.1)
    pytest.fail(f"waited {WAIT} s for: {what}")


@pytest.fixture(scope="session")
def bare():
    """The API server without Kiln."""
    try:
        envtest.build()
    except RuntimeError as error:
        pytest.skip(f"integration/operator/crds: {error}")
    with envtest.EnvTest() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def cluster(bare):
    """The API server with crds/ applied as a user does; the server must give no warning."""
    done = bare.kubectl("apply", "--server-side", "-k", str(ROOT / "crds"), check=False)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    bare.kubectl("wait", "--for=condition=Established", f"--timeout={WAIT}s", "crd",
                 *(f"{plural}.{GROUP}" for plural in PLURAL.values()))
    return bare


@pytest.fixture(scope="session")
def client(cluster):
    return Client(cluster)
