# SPDX-License-Identifier: Apache-2.0
"""The CA that replicas share: created once, rotated while agents connect, repaired when it is damaged. With the shipped
roles; certificates are verified with OpenSSL, as agents do."""

import base64
import json
import signal
import socket
import ssl
import threading
import time
import urllib.error

import pytest
from conftest import NAMESPACE, program

SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/kiln-stream-ca"
BUNDLE = f"/api/v1/namespaces/{NAMESPACE}/configmaps/kiln-stream-ca"
SERVER = f"kiln-operator-stream.{NAMESPACE}.svc"
LIFE = 40  # seconds: the next CA is made after 27 s, signs a second or two later, and the old one is dropped 10 s after that


def read(cluster, path):
    try:
        return json.loads(cluster.request(path))["data"]
    except urllib.error.HTTPError as e:
        assert e.code == 404
        return None


def secret(cluster):
    data = read(cluster, SECRET)
    return data and {key: base64.b64decode(value).decode() for key, value in data.items()}


def bundle(cluster):
    data = read(cluster, BUNDLE)
    return data and data["ca.crt"]


def shown(port, ca):
    """The certificate that the server shows to an agent that trusts CA; raises ssl.SSLError when it is not trusted."""
    context = ssl.create_default_context(cadata=ca)
    context.set_alpn_protocols(["h2"])
    with socket.create_connection(("127.0.0.1", port), timeout=10) as s:
        with context.wrap_socket(s, server_hostname=SERVER) as tls:
            return tls.getpeercert(binary_form=True)


@pytest.fixture
def replica(cluster, start):
    """replica(name, *options): starts an operator and waits until it serves: (operator, port)."""
    def replica(name, *options, wait=True):
        port = program.free_port()
        op = start(name, "--stream-address", f"127.0.0.1:{port}", *options)
        if wait:
            serves(op, port)
        return op, port

    return replica


def serves(op, port):
    program.wait_until("readiness", op.ready)
    program.wait_until("a node stream", lambda: f"serves agents on 127.0.0.1:{port}" in op.log)


@pytest.fixture(autouse=True)
def clean(cluster):
    for path in (SECRET, BUNDLE):
        try:
            cluster.request(path, "DELETE")
        except urllib.error.HTTPError as e:
            assert e.code == 404


def test_replicas_that_start_at_once_have_one_ca(cluster, replica):
    both = [replica(f"operator-{i}", "--stream-ca-life", "96", wait=False) for i in range(2)]
    for op, port in both:
        serves(op, port)
    ca = program.wait_until("a bundle", lambda: bundle(cluster))
    assert secret(cluster)["ca.crt"] == ca
    assert len({shown(port, ca) for _, port in both}) == 2
    with pytest.raises(ssl.SSLError):
        shown(both[0][1], cluster_ca(cluster))
    cluster.patch("configmap", "kiln-stream-ca", {"data": {"ca.crt": "nonsense"}})
    program.wait_until("the bundle again", lambda: bundle(cluster) == ca)
    cluster.request(BUNDLE, "DELETE")
    assert program.wait_until("the bundle again", lambda: bundle(cluster)) == ca
    for op, _ in both:
        assert "PRIVATE" not in op.log


def cluster_ca(cluster):
    with open(cluster.ca, encoding="utf-8") as f:
        return f.read()


class Agents(threading.Thread):
    """A thread that connects to each port again and again, trusting the CA bundle of OLD seconds ago."""
    OLD = 0.5

    def __init__(self, cluster, ports):
        super().__init__(daemon=True)
        self.cluster, self.ports, self.ending = cluster, ports, False
        self.refused, self.seen, self.bundles = [], set(), []
        self.start()

    def run(self):
        history = [(time.monotonic(), bundle(self.cluster))]
        while not self.ending:
            now = time.monotonic()
            history.append((now, bundle(self.cluster)))
            # If a busy machine delayed this thread, the bundle of OLD seconds ago is unknown: use the next newer one.
            while len(history) > 1 and (history[1][0] <= now - self.OLD or history[0][0] < now - 2 * self.OLD):
                history.pop(0)
            if not self.bundles or self.bundles[-1] != history[-1][1]:
                self.bundles.append(history[-1][1])
            for port in self.ports:
                try:
                    self.seen.add(shown(port, history[0][1]))
                except ConnectionError:
                    pass  # the replica was killed
                except OSError as e:
                    self.refused.append((port, repr(e)))
            time.sleep(0.05)


def test_a_rotation_refuses_nobody(cluster, replica):
    """Two replicas, of which one is killed during the rotation, and agents that connect all the time."""
    life = ("--stream-ca-life", str(LIFE))
    (first, port), (second, other) = replica("operator-0", *life), replica("operator-1", *life)
    began = program.wait_until("a bundle", lambda: bundle(cluster))
    agents = Agents(cluster, [port, other])
    program.wait_until("a next CA", lambda: bundle(cluster).count("BEGIN CERTIFICATE") == 2)
    assert bundle(cluster).startswith(began)
    follower = second if first.leads() else first
    follower.stop(signal.SIGKILL)
    program.wait_until("the switch", lambda: secret(cluster)["ca.crt"] != began)
    assert began in bundle(cluster), "certificates of the old CA may still be shown"
    program.wait_until("the old CA's end", lambda: began not in bundle(cluster))
    program.wait_until("agents that saw it", lambda: len(agents.bundles) >= 4)
    agents.ending = True
    agents.join()
    assert agents.refused == []
    assert len(agents.seen) > 6  # each certificate is in use for five or six seconds
    assert [b.count("BEGIN CERTIFICATE") for b in agents.bundles] == [1, 2, 2, 1]
    assert "old.key" not in secret(cluster)


@pytest.mark.parametrize("damage", [
    {"ca.key": "AAAA"}, {"ca.crt": None}, {"ca.crt": "bm90aGluZw=="}, {"ca.crt": None, "ca.key": None, "x": "eA=="}],
    ids=["key", "no-certificate", "nonsense", "empty"])
def test_a_damaged_secret_is_written_again(cluster, replica, damage):
    op, port = replica("operator-0", "--stream-ca-life", "96")
    program.wait_until("lead", op.leads)
    ca = program.wait_until("a bundle", lambda: bundle(cluster))
    before = secret(cluster)
    assert before["ca.key"].startswith("-----BEGIN PRIVATE KEY")
    cluster.patch("secret", "kiln-stream-ca", {"data": damage})
    program.wait_until("the repair", lambda: secret(cluster) == before)
    assert bundle(cluster) == ca
    shown(port, ca)
    events = json.loads(cluster.request(f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events"))["items"]
    assert any(e["reason"] == "Damaged" and e["type"] == "Warning" and e["regarding"]["name"] == "kiln-stream-ca"
               for e in events)
    assert op.metric("kiln_stream_ca_repairs_total") == 1 and op.process.poll() is None


def test_a_damaged_secret_from_before_the_start_gets_a_new_ca(cluster, replica):
    cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "kiln-stream-ca", "namespace": NAMESPACE},
                   "data": {"ca.crt": "AAAA", "ca.key": "AAAA"}})
    op, port = replica("operator-0")
    ca = program.wait_until("a bundle", lambda: bundle(cluster))
    shown(port, ca)
    assert op.metric("kiln_stream_ca_repairs_total") == 1


def test_a_secret_that_goes_comes_back_as_it_was(cluster, replica):
    op, port = replica("operator-0", "--stream-ca-life", "96")
    ca = program.wait_until("a bundle", lambda: bundle(cluster))
    cluster.request(SECRET, "DELETE")
    assert program.wait_until("the Secret", lambda: secret(cluster))["ca.crt"] == ca
    shown(port, ca)


def test_a_restart_keeps_the_ca(cluster, replica):
    op, _ = replica("operator-0")
    ca = program.wait_until("a bundle", lambda: bundle(cluster))
    before = secret(cluster)
    op.stop()
    _, port = replica("operator-1")
    shown(port, ca)
    assert secret(cluster) == before


def test_a_certificate_of_files_has_its_ca_published(cluster, start, certificate):
    port = program.free_port()
    op = start("operator-0", "--stream-address", f"127.0.0.1:{port}", "--stream-cert", str(certificate[1]),
               "--stream-key", str(certificate[2]), "--stream-ca", str(certificate[0]))
    serves(op, port)
    assert program.wait_until("a bundle", lambda: bundle(cluster)) == certificate[0].read_text()
    assert secret(cluster) is None
