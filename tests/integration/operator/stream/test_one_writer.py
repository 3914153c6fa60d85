# SPDX-License-Identifier: Apache-2.0
"""Two replicas of each role are killed, stopped, partitioned from the API server, and have their clocks set, one after
another. By the API server's audit log only the holder of the lease writes; another replica takes over, no change of a
config is lost, and agents are told nothing wrong. KILN_LONG=1: a replica is stopped or partitioned for a minute."""

import os
import pathlib
import signal
import time

import pytest
from conftest import CONTROLLER, NAMESPACE, STREAM, bundle, program
from test_storm import Proxy, through
from test_stream import live, nodes  # noqa: F401

AWAY = 60 if os.environ.get("KILN_LONG") else 16  # seconds: longer than the lease
SHIFT = os.environ.get("KILN_CLOCK_SHIFT")
LEASES = "coordination.k8s.io"


class Replica:
    """A replica: a program that can be restarted, with a proxy to the API server and a wall clock of its own."""

    def __init__(self, user, proxy, shift, launch):
        self.user, self.proxy, self.shift, self._launch = user, proxy, shift, launch
        self.set_clock(0)
        self.op = launch()

    def set_clock(self, seconds):
        self.shift.write_text(str(seconds), encoding="utf-8")

    def ended(self):
        """Waits until the program has ended; its exit code."""
        return program.wait_until("its end", lambda: self.op.process.poll() is not None) and self.op.process.returncode

    def again(self):
        """Starts the ended program again, as the kubelet does with a container."""
        assert self.op.process.poll() is not None
        self.op = self._launch()
        program.wait_until("readiness", self.op.ready)

    def signal(self, number):
        os.kill(self.op.process.pid, number)


class World:
    def __init__(self, cluster, since, controllers, streams):
        self.cluster, self.since, self.controllers, self.streams = cluster, since, controllers, streams
        self.hz, self.interval = 20, 10
        self.agent = None

    def leader(self):
        """The replica that leads; None when no running replica does."""
        return next((c for c in self.controllers if c.op.process.poll() is None and not stopped(c) and c.op.leads()), None)

    def other(self, replica):
        return next(c for c in self.controllers if c is not replica)

    def change(self):
        """Changes a namespace's config, which agents and its status show, and the cluster's, which rendered objects show."""
        self.hz, self.interval = self.hz + 1, self.interval + 1
        self.cluster.apply(program.thing("ProfilingConfig", "fast", {
            "profile": {"sampling": {"hz": self.hz}}}, "shop"))
        self.cluster.patch("cpc", "cluster", {"spec": {"agent": {"reportIntervalSeconds": self.interval}}})

    def told(self):
        """Waits until the agent was told of the last change."""
        assert self.agent.closed is None, self.agent.closed
        self.agent.until(f"{self.hz} Hz", lambda a: a.policy_of("web")["hz"] == self.hz)

    def done(self):
        """Waits until a controller has acted on the last change; no older value may have been written after it."""
        c = self.cluster
        program.wait_until("the agents' configuration", lambda: f"reporter_interval: {self.interval}s" in (c.object(
            "configmap", "kiln-agent") or {"data": {"agent.yaml": ""}})["data"]["agent.yaml"])
        for kind, name, namespace in (("pcfg", "fast", "shop"), ("cpc", "cluster", NAMESPACE)):
            program.wait_until(f"the status of {name}", lambda: (c.condition(kind, name, "Accepted", namespace) or [  # noqa: B023
                ""])[0] == "True")
        assert c.object("pcfg", "fast", "shop")["spec"]["profile"]["sampling"]["hz"] == self.hz
        assert c.object("cpc", "cluster")["spec"]["agent"]["reportIntervalSeconds"] == self.interval

    def taken_over(self, what, by, since):
        program.wait_until("another leader", by.op.leads)
        print(f"{what}: another leads after {time.monotonic() - since:.1f} s")
        self.done()

    def writes(self):
        """(begun, ended, user, is it a write of the lease, text) of each successful write of a controller."""
        users = {c.user for c in self.controllers}
        self.cluster.settled()
        for e in self.cluster.audit(self.since):
            ref = e.get("objectRef", {})
            if e["verb"] in ("get", "list", "watch") or e["user"].get("username") not in users or \
                    e["responseStatus"]["code"] >= 300 or ref.get("apiGroup") == "authentication.k8s.io":
                continue
            yield (e["requestReceivedTimestamp"], e["stageTimestamp"], e["user"]["username"],
                   ref.get("apiGroup") == LEASES, f"{e['verb']} {ref.get('resource')} {ref.get('name')}")


def stopped(replica):
    stat = pathlib.Path(f"/proc/{replica.op.process.pid}/stat").read_text(encoding="ascii")
    return stat.rsplit(") ", 1)[1].startswith("T")


def one_at_a_time(writes):
    """The users in the order in which they led. Fails when a user wrote while another one held the lease."""
    writes = list(writes)
    leases = sorted((ended, user) for _, ended, user, lease, _ in writes if lease)

    def holder(at):
        return next((user for ended, user in reversed(leases) if ended <= at), None)

    wrong = [(begun, user, what, holder(begun), holder(ended)) for begun, ended, user, lease, what in writes
             if not lease and {holder(begun), holder(ended)} != {user}]
    assert not wrong, wrong
    assert len(writes) > len(leases) > 0
    order = [user for _, user in leases]
    return [user for i, user in enumerate(order) if i == 0 or user != order[i - 1]]


@pytest.fixture
def world(cluster, nodes, shipped, accounts, start, control, join, tmp_path):  # noqa: F811
    """Two replicas of each role. The controllers have two accounts with equal rights, to be told apart in the audit log."""
    directory = tmp_path / "accounts"
    directory.mkdir()
    cluster.kubectl("create", "serviceaccount", "operator-b", "-n", NAMESPACE)
    both = [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE} for name in (CONTROLLER, "operator-b")]
    for kind in ("rolebinding", "clusterrolebinding"):
        cluster.patch(kind, "kiln-operator", {"subjects": both})
    ports, proxies, since = [program.free_port() for _ in range(2)], [], cluster.mark()

    def replica(name, account, kubeconfig, launch):
        proxy = Proxy(cluster.state["apiserver_port"])
        proxies.append(proxy)
        path = through(cluster, kubeconfig, proxy.port, tmp_path / f"{name}.kubeconfig")
        shift = tmp_path / f"{name}.shift"
        env = {"LD_PRELOAD": SHIFT, "KILN_CLOCK_SHIFT_FILE": str(shift)} if SHIFT else {}
        return Replica(f"system:serviceaccount:{NAMESPACE}:{account}", proxy, shift, lambda: launch(path, env))

    streams = [replica(f"stream-{i}", STREAM, accounts[STREAM], lambda path, env, i=i: start(
        f"stream-{i}", "--role=stream", "--stream-address", f"127.0.0.1:{ports[i]}", kubeconfig=path, env=env))
        for i in range(2)]
    controllers = [replica(f"controller-{i}", account, kubeconfig, lambda path, env, i=i: control(
        f"controller-{i}", *ports, kubeconfig=path, env=env))
        for i, (account, kubeconfig) in enumerate(((CONTROLLER, accounts[CONTROLLER]),
                                                   ("operator-b", cluster.account("operator-b", directory))))]
    w = World(cluster, since, controllers, streams)
    before = None
    try:
        for r in (*controllers, *streams):
            program.wait_until("readiness", r.op.ready)
        before = program.wait_until("the first config", lambda: cluster.object("cpc", "cluster"))["spec"]
        w.ca = tmp_path / "ca.crt"
        w.ca.write_text(program.wait_until("a bundle", lambda: bundle(cluster)), encoding="utf-8")
        w.agent, w.join = join(ports[0], w.ca, "agent-n1"), lambda i, pod: join(ports[i], w.ca, pod)
        w.agent.until("a snapshot", live)
        cluster.reset({"destinations": [{"name": "logs", "text": {}}]})
        yield w
    finally:
        for r in (*controllers, *streams):
            if r.op.process.poll() is None:
                r.signal(signal.SIGCONT)
        for proxy in proxies:
            proxy.close()
        cluster.kubectl("delete", "pcfg", "--all", "-n", "shop")
        if before:
            cluster.reset(before)


def test_one_leads_and_no_change_is_lost(world):
    program.wait_until("a leader", world.leader)
    world.change()
    world.told()
    world.done()
    killed(world)
    stood_still(world)
    clocks(world)
    parted(world)
    streams_too(world)
    order = one_at_a_time(world.writes())
    assert len(order) == 4, order  # the first leader, and those that took over from a killed, a stopped and a partitioned one
    print("led in turn:", [name.rsplit(":", 1)[1] for name in order])


def killed(world):
    leader = world.leader()
    leader.signal(signal.SIGKILL)
    since = time.monotonic()
    world.change()
    world.told()
    world.taken_over("kill -9", world.other(leader), since)
    leader.ended()
    leader.again()


def stood_still(world):
    """The leader is stopped and continued: it does not know at first that it was away, and must not write."""
    leader = world.leader()
    leader.signal(signal.SIGSTOP)
    since = time.monotonic()
    world.change()
    world.told()
    world.taken_over("SIGSTOP", world.other(leader), since)
    time.sleep(max(0, AWAY - (time.monotonic() - since)))
    world.change()
    leader.signal(signal.SIGCONT)
    assert leader.ended() == 1 and "lost the lease" in leader.op.log
    world.told()
    world.done()
    leader.again()


def clocks(world):
    """Clocks are set a day ahead and back: the leader keeps the lease, and the other does not acquire it."""
    if not SHIFT:
        return  # the clock cannot be shifted in builds with sanitizers
    leader = world.leader()
    for replica, seconds in ((leader, 86400), (world.other(leader), 86400), (leader, 0), (leader, 3600),
                             (world.other(leader), 0), (leader, 0), (world.streams[0], 1800), (world.streams[0], 0)):
        replica.set_clock(seconds)
        world.change()
        world.told()
        world.done()
    time.sleep(5)
    assert world.leader() is leader and not world.other(leader).op.leads()


def parted(world):
    """The leader is partitioned from the API server: its requests do not arrive, and some arrive late."""
    leader = world.leader()
    leader.proxy.hold()
    since = time.monotonic()
    world.change()
    world.told()
    world.taken_over("parted", world.other(leader), since)
    time.sleep(max(0, AWAY - (time.monotonic() - since)))
    leader.proxy.release()
    assert leader.ended() == 1 and "lost the lease" in leader.op.log
    world.change()
    world.told()
    world.done()
    leader.again()


def joined(world, i):
    world.agent = world.join(i, "agent-n1")
    world.agent.until("a snapshot", live)


def streams_too(world):
    """The same for stream replicas: agents keep their state, and are told of changes afterwards."""
    stream = world.streams[0]
    stream.proxy.hold()
    world.change()
    world.done()
    time.sleep(AWAY)
    assert stream.op.ready()  # otherwise its agents would lose their stream
    stream.proxy.release()
    world.told()
    stream.signal(signal.SIGSTOP)
    world.change()
    world.done()
    time.sleep(AWAY)
    stream.signal(signal.SIGCONT)
    world.agent.until("the change, or the end", lambda a: a.closed or a.policy_of("web")["hz"] == world.hz)
    if world.agent.closed:  # a replica that was stopped for long does not answer pings, so its agents connect to another one
        joined(world, 0)
    world.told()
    stream.signal(signal.SIGKILL)
    world.agent.until("the end", lambda a: a.closed)
    joined(world, 1)
    world.told()
    stream.ended()
    stream.again()
