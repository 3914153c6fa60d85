# SPDX-License-Identifier: Apache-2.0
"""Upgrade from an earlier version and roll-back, with `kubectl apply -k`: operators of both versions tell agents of both
versions the same, whichever leads. Runs only with KILN_OLD, the path of a checkout of the earlier version with its
build/dev."""

import contextlib
import os
import subprocess

import conftest
from conftest import CONTROLLER, STREAM, program
from test_stream import live, make_pod, nodes  # noqa: F401

OLD, NEW = os.environ.get("KILN_OLD"), str(program.ROOT)


def install(cluster, tree):
    """Applies the default overlay of TREE. Objects of the other version stay, since apply deletes nothing."""
    cluster.kubectl("apply", "-k", f"{tree}/kustomize/overlays/default")


@contextlib.contextmanager
def binaries(tree):
    """A context in which the programs of TREE are started."""
    was = program.OPERATOR, conftest.AGENT
    program.OPERATOR, conftest.AGENT = f"{tree}/build/dev/bin/kiln-operator", f"{tree}/build/dev/bin/stream_agent"
    yield
    program.OPERATOR, conftest.AGENT = was


class Version:
    """The operator of one version, in the roles that this version has, and its agents, of both versions."""

    def __init__(self, tree, fixtures, tag):
        self.tree, self.f, self.tag, self.agents = tree, fixtures, tag, []

    def start(self):
        port = program.free_port()
        stream = ["--stream-address", f"127.0.0.1:{port}"]
        if self.tree == OLD:
            with binaries(OLD):
                self.controller = self.f["start"](f"{self.tag}-operator", *stream, kubeconfig=self.f["accounts"][CONTROLLER])
            self.programs = [self.controller]
        else:
            server = self.f["start"](f"{self.tag}-stream", "--role=stream", *stream, kubeconfig=self.f["accounts"][STREAM])
            self.controller = self.f["control"](f"{self.tag}-controller", port)
            self.programs = [self.controller, server]
        self.port = port
        for op in self.programs:
            program.wait_until("readiness", op.ready)
        return self

    def connect(self, cluster, token, tmp_path, trees):
        """Connects two agents, of the versions TREES, on the nodes n1 and n2."""
        ca = tmp_path / f"{self.tag}-ca.crt"
        ca.write_text(program.wait_until("a bundle", lambda: conftest.bundle(cluster)), encoding="utf-8")
        self.leave()
        for node, tree in zip(("n1", "n2"), trees):
            with binaries(tree) if tree == OLD else contextlib.nullcontext():
                self.agents.append(conftest.Agent(self.port, ca, token(f"agent-{node}")))
        for a in self.agents:
            a.until("a snapshot", live)

    def leave(self):
        assert all(a.closed is None for a in self.agents), [a.closed for a in self.agents]
        for a in self.agents:
            a.stop()
        self.agents = []

    def told(self):
        """{(namespace, pod): (is it profiled, Hz or False, its k8s.* attributes)}, from all agents."""
        pods = {}
        for a in self.agents:
            for p in a.pods.values():
                policy = a.policies[p["policy"]]
                names = {k: v for k, v in p["attributes"].items() if k.startswith("k8s.")}
                pods[p["namespace"], p["name"]] = (policy["enabled"], policy["enabled"] and policy["hz"], names)
        return pods

    def until_hz(self, hz):
        """Waits until the agents are told the rate HZ for the pods of shop."""
        for a, pod in zip(self.agents, ("web", "db")):
            a.until(f"{hz} Hz", lambda a: a.policy_of(pod)["hz"] == hz)  # noqa: B023

    def leads(self):
        program.wait_until(f"{self.tag} to lead", self.controller.leads)

    def stop(self):
        self.leave()
        for op in self.programs:
            assert op.stop() == 0, op.log[-3000:]


def test_there_and_back(cluster, nodes, shipped, accounts, start, control, token, tmp_path):  # noqa: F811
    for binary in ("kiln-operator", "stream_agent"):
        subprocess.run(["test", "-x", f"{OLD}/build/dev/bin/{binary}"], check=True)
    fixtures = {"start": start, "accounts": accounts, "control": control}
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "quiet"}})
    make_pod(cluster, "quiet", "untold", "n1")

    def set_hz(hz):
        cluster.apply(program.thing("ProfilingConfig", "fast", {"profile": {"sampling": {"hz": hz}}}, "shop"))

    install(cluster, OLD)
    set_hz(37)
    cluster.apply(program.thing("ProfilingConfig", "off", {"profile": {"mode": "Disabled"}}, "quiet"))
    running = Version(OLD, fixtures, "first").start()
    running.leads()
    running.connect(cluster, token, tmp_path, (OLD, NEW))
    running.until_hz(37)
    expected = running.told()
    assert not expected["quiet", "untold"][0] and expected["shop", "web"][:2] == (True, 37)
    hz = 37
    for tag, tree in (("up", NEW), ("back", OLD), ("again", NEW)):
        install(cluster, tree)
        coming = Version(tree, fixtures, tag).start()
        assert running.told() == expected
        # The agents move to the new operator while the old one leads; each agent version is on each node once.
        running.leave()
        for trees in ((NEW, OLD), (OLD, NEW)):
            coming.connect(cluster, token, tmp_path, trees)
            coming.until_hz(hz)
            assert coming.told() == expected, tag
        running.stop()
        coming.leads()
        hz += 2
        set_hz(hz)
        coming.until_hz(hz)
        expected = {key: (on, hz if key[0] == "shop" and on else rate, names)
                    for key, (on, rate, names) in expected.items()}
        assert coming.told() == expected, tag
        program.wait_until("acceptance", lambda: (
            cluster.condition("pcfg", "fast", "Accepted", "shop") or [""])[0] == "True")
        assert cluster.object("daemonset", "kiln-agent")
        running = coming
    running.stop()
    for namespace in ("shop", "quiet"):
        cluster.kubectl("delete", "pcfg", "--all", "-n", namespace)
    cluster.kubectl("delete", "pod", "untold", "-n", "quiet", "--grace-period=0", "--force")
