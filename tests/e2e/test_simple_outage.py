# SPDX-License-Identifier: Apache-2.0
"""All replicas of the operator are away for 20 seconds (five minutes with KILN_LONG=1), while pods come and go and the
cluster's config changes. No sample of a known pod is lost, and each is named, even by an agent that is restarted during
the outage. When the operators are back, the agents learn of the new pods and the new config."""
import os
import re
import signal
import subprocess
import time

import pytest

from cluster import AGENTS, NAMESPACE, OPERATORS, SCRIPT, cpu, dump_lines, host_pids, is_ready, textdump, wait_for

LONG = os.environ.get("KILN_LONG") == "1"
AWAY = 300 if LONG else 20
LOSSES = ("kiln_samples_dropped_total", "kiln_ring_full_total", "kiln_local_export_dropped_samples_total")
UNKNOWN = ("kiln_samples_without_policy_total",)
HEADER = "--------------- New Resource Profile"


class Follower:
    """Everything that the agent writes from now on. `kubectl logs -f` follows the log across the kubelet's log rotation."""

    def __init__(self, cluster, path):
        self.path = path
        with open(path, "wb") as out:
            self.process = subprocess.Popen([SCRIPT, "run", cluster.node_dir, "--", "kubectl", "logs", "-f", "--tail=0",
                                             "-n", NAMESPACE, "ds/kiln-agent"], stdout=out, stderr=subprocess.STDOUT)

    def samples(self, container):
        with open(self.path, encoding="utf-8", errors="replace") as f:
            text = f.read()
        end = text.rfind("--- End Sample ---")
        begin = text.find(HEADER)
        if end < begin or begin < 0:
            return []
        return [s for s in textdump.parse(dump_lines(text[begin:text.find("\n", end) + 1]))
                if s.resource.get("container.id") == container]

    def count(self, container):
        return sum(s.value for s in self.samples(container))

    def close(self):
        self.process.kill()
        self.process.wait()


def at_a_windows_end(log, container):
    """Waits for the end of a window in the log; (samples of CONTAINER so far, its CPU time in seconds)."""
    before = log.count(container)
    wait_for("a window's end", lambda: log.count(container) != before, interval=0.1)
    used, count = cpu(container), 0
    while count != log.count(container):  # until the whole window is written
        count = log.count(container)
        time.sleep(0.7)
    return count, used


def kill_operators(cluster):
    """Scales both roles to 0 and kills all replicas at once with SIGKILL."""
    pods = wait_for("two operators", lambda: (p := cluster.pods(OPERATORS)) and len(p) == 4 and all(map(is_ready, p)) and p)
    pids = [pid for p in pods for pid in host_pids(p["status"]["containerStatuses"][0]["containerID"].split("://")[1])]
    assert len(pids) == 4
    cluster.scale(0)
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # the process has already ended
    wait_for("no operator", lambda: not cluster.get("pods", "-n", NAMESPACE, "-l", OPERATORS)["items"])


def lost(cluster):
    """How many samples the agent took and then lost, by its own counters."""
    return counters(cluster, LOSSES)


def counters(cluster, names):
    text = cluster.kubectl("get", "--raw", f"/api/v1/namespaces/{NAMESPACE}/pods/"
                           f"{cluster.pods(AGENTS)[0]['metadata']['name']}:13133/proxy/metrics")
    rows = [line.rsplit(" ", 1) for line in text.splitlines() if line.startswith(names)]
    assert {row[0].split("{")[0] for row in rows} == set(names)
    return sum(float(value) for _, value in rows)


def names(samples):
    return {s.resource.get("k8s.pod.name") for s in samples}


@pytest.fixture
def outage(cluster, tmp_path):
    """Kills the operators. Gives (Follower of the log, time of the kill); scales the operators up again afterwards."""
    wait_for("the agent", cluster.agent)
    log = Follower(cluster, str(tmp_path / "log"))
    _, busy = cluster.pod_ids("busy")
    wait_for("samples", lambda: log.count(busy) > 0)
    kill_operators(cluster)
    yield log, time.monotonic()
    log.close()
    for name in ("born", "doomed"):
        cluster.kubectl("delete", "pod", "-n", "shop", name, "--ignore-not-found", "--wait=false")
    cluster.scale(2)
    cluster.patch({"spec": {"defaults": {"sampling": {"hz": 20}}}})


@pytest.fixture
def doomed(cluster):
    cluster.busy_pod("doomed")
    wait_for("the pod that will go", lambda: is_ready(cluster.get("pod", "-n", "shop", "doomed")))
    _, container = cluster.pod_ids("doomed")
    wait_for("its name", lambda: names(cluster.samples(container)) == {"doomed"})
    return container


def test_operators_are_away(cluster, doomed, outage):
    log, since = outage
    uid, busy = cluster.pod_ids("busy")
    lost_before, unknown_before = lost(cluster), counters(cluster, UNKNOWN)
    hz = cluster.get("cpc", "cluster")["spec"]["defaults"]["sampling"]["hz"]
    begun = at_a_windows_end(log, busy)
    # During the outage one pod is deleted, another is created, and the rate is changed.
    cluster.kubectl("delete", "pod", "-n", "shop", "doomed", "--now")
    cluster.busy_pod("born")
    wait_for("the pod that came", lambda: is_ready(cluster.get("pod", "-n", "shop", "born")))
    _, born = cluster.pod_ids("born")
    cluster.patch({"spec": {"defaults": {"sampling": {"hz": 97}}}})
    time.sleep(max(0, AWAY * 2 / 3 - (time.monotonic() - since)))
    ended = at_a_windows_end(log, busy)
    samples, used = (after - before for after, before in zip(ended, begun))
    cluster.times.append((f"operator away: samples for each of {used:.0f} s of CPU, at {hz} Hz", samples / used))
    # Which task a CPU's timer hits is random: allow four standard deviations. No sample that was taken is lost.
    assert abs(samples - used * hz) <= 4 * (used * hz) ** 0.5 + 3, "samples lost, or too many"
    assert lost(cluster) == lost_before
    assert names(log.samples(busy)) == {"busy"}
    assert names(log.samples(doomed)) <= {"doomed"}
    # The agent was told nothing about the new pod: its samples are held, and dropped after three windows.
    wait_for("dropped samples of the pod that came", lambda: counters(cluster, UNKNOWN) > unknown_before and cpu(born) > 3)
    assert log.count(born) == 0
    cold_start(cluster, busy)
    assert cluster.count(born) == 0
    time.sleep(max(0, AWAY - (time.monotonic() - since)))
    assert names(cluster.samples(busy)) == {"busy"}
    cluster.times.append(("operator away, in all", time.monotonic() - since))
    come_back(cluster, born, busy, uid)


def cold_start(cluster, busy):
    """An agent that starts while no operator runs names the pods that are in the snapshot on disk."""
    before = cluster.pods(AGENTS)[0]["status"]["containerStatuses"][0]
    (pid,) = host_pids(before["containerID"].split("://")[1])
    os.kill(pid, signal.SIGKILL)
    wait_for("another container", lambda: cluster.pods(AGENTS)[0]["status"]["containerStatuses"][0]["restartCount"]
             == before["restartCount"] + 1 and cluster.agent())
    wait_for("samples without the operator", lambda: cluster.count(busy) >= 20, interval=0.5)
    assert names(cluster.samples(busy)) == {"busy"}


def come_back(cluster, born, busy, uid):
    """New operators (with a new epoch, other pods and another rate) send a snapshot, and the agent is not restarted."""
    before = cluster.agent()["status"]["containerStatuses"][0]["containerID"]
    cluster.scale(2)
    wait_for("samples of the pod that came", lambda: cluster.count(born) > 0)
    assert names(cluster.samples(born)) == {"born"}
    assert {s.resource["k8s.pod.uid"] for s in cluster.samples(busy)} == {uid} and names(cluster.samples(busy)) == {"busy"}

    def rate():
        count, used = cluster.count(busy), cpu(busy)
        time.sleep(6)
        return (cluster.count(busy) - count) / (cpu(busy) - used)
    wait_for("the rate that was asked for meanwhile", lambda: 60 < rate() < 140)
    assert cluster.agent()["status"]["containerStatuses"][0]["containerID"] == before
    assert lost(cluster) == 0  # since the start of this agent
    assert not re.search(r"eyJ[A-Za-z0-9_-]{20}", cluster.log())
