# SPDX-License-Identifier: Apache-2.0
"""Pods' policies take effect in the kernel at once, and samples have their pod's identity. A real agent, real cgroups as the
kubelet makes them, an operator that sends what the test sets, a real Collector."""
import itertools
import math
import os
import pathlib
import re
import subprocess
import time

import pytest

from node_operator import Operator, Pod
from parts import LONG, ROOT, ContainerCgroup, dump, period, profiling, values, wait_until, workload

SECONDS = 60 if LONG else 30
# HITS: timer hits, at HITS_HZ, on each kind of pod that must not be profiled. OUTAGE: seconds without the operator.
HITS, HITS_HZ, OUTAGE = (100_000, 997, 600) if LONG else (1000, 197, 0)
IDENTITY = {"k8s.namespace.name", "k8s.pod.name", "k8s.pod.uid", "k8s.deployment.name", "service.name", "container.id",
            "k8s.container.name", "container.image.name", "container.image.repo_digests"}


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """A busy loop under a unique name: tests that run at the same time have workloads, too."""
    link = tmp_path_factory.mktemp("program") / "policy-frames"
    link.symlink_to(workload.path("frames"))
    return link


@pytest.fixture
def operator(tmp_path):
    o = Operator(tmp_path)
    yield o
    o.close()


@pytest.fixture
def pod(program):
    """pod(p): starts busy loops in the pod P. Processes and cgroups are removed after the test."""
    running = []

    def start(p, seconds=300, loops=1):
        running.append(Busy(p, program, seconds, loops))
        return running[-1]

    yield start
    for r in running:
        r.end()
    for r in reversed(running):  # the first cgroup made the parent directories, so it is removed last
        r.cgroup.close()


class Busy:
    """LOOPS busy processes that are in the container's cgroup from their first instruction on."""

    def __init__(self, pod, program, seconds, loops):
        self.cgroup = ContainerCgroup(pod.path, ["", "memory"])
        join = "; ".join(f"echo $$ > {leaf}/cgroup.procs" for leaf in self.cgroup.leaves)
        self.processes = [subprocess.Popen(["sh", "-c", f"{join}; exec {program} {seconds}"], stdin=subprocess.DEVNULL,
                                           stdout=subprocess.DEVNULL) for _ in range(loops)]

    def used(self):
        """CPU time of the processes so far, in seconds."""
        fields = [pathlib.Path(f"/proc/{p.pid}/stat").read_text().rsplit(")", 1)[1].split() for p in self.processes]
        return sum(int(f[11]) + int(f[12]) for f in fields) / os.sysconf("SC_CLK_TCK")

    def end(self):
        """Kills the processes; their CPU time in seconds."""
        total = 0
        for p in self.processes:
            p.kill()
            usage = os.wait4(p.pid, 0)[2]
            p.returncode = -9
            total += usage.ru_utime + usage.ru_stime
        self.processes = []
        return total


def configuration(operator, collector, hz=20, interval="1s", processors="", timestamps=False, more=""):
    return f"""
receivers:
  profiling: {{samples_per_second: {hz}, reporter_interval: {interval}, timestamps: {str(timestamps).lower()},
              process_filter: "^policy-"}}
processors:
  k8sattributes: {{operator: {operator.settings(more)}{processors}}}
exporters:
  otlp_grpc: {{endpoint: "127.0.0.1:{collector.grpc}", tls: {{insecure: true}}}}
service:
  pipelines:
    profiles: {{receivers: [profiling], processors: [k8sattributes], exporters: [otlp_grpc]}}
"""


def of(samples, pod):
    return [s for s in samples if s["resource"].get("container.id") == pod.container_id]


def cpu_seconds(samples):
    return sum(s["value"] * s["period"][2] for s in samples) / 1e9


def rendered_metadata():
    """The key extract.metadata as the operator renders it, with k8s.cluster.name as for a cluster with a name."""
    golden = (ROOT / "tests/data/render/minimal.golden").read_text()
    names = re.search(r"\n +metadata:\n((?: +- [a-z_0-9.]+\n)+)", golden)[1]
    return ", extract: {metadata: [" + ", ".join(names.replace("- ", "").split() + ["k8s.cluster.name"]) + "]}"


def test_two_rates_tell_the_same_time(agent, collector, operator, pod):
    told = {"k8s.service.name": "orchard-web", "k8s.cluster.uid": "the-cluster", "k8s.cluster.name": "orchards"}
    slow, fast, off = Pod(1, policy=20, attributes=told), Pod(2, policy=97, attributes=told), Pod(3, policy=1)
    operator.tell(policies={20: (True, 20), 97: (True, 97), 1: (False, 20)}, pods=[slow, fast, off])
    collector.start()
    a = agent(config=configuration(operator, collector, processors=rendered_metadata()))
    profiling(a)
    operator.connected()
    loop = pod(off)
    time.sleep(3)
    wait_until("the loop computes", lambda: loop.used() > 0.2)
    used = {off: loop.end()}
    busy = {p: pod(p) for p in (slow, fast)}
    time.sleep(SECONDS)
    used |= {p: b.end() for p, b in busy.items()}
    time.sleep(1)
    assert a.stop() == 0, a.stderr()
    samples = collector.samples()
    for p, hz in ((slow, 20), (fast, 97)):
        own = of(samples, p)
        assert {s["period"] for s in own} == {("cpu", "nanoseconds", period(hz))}
        assert used[p] > SECONDS / 20, used
        # On a busy machine it is random whether a hit finds the loop running: allow three standard deviations for that.
        chance = math.sqrt(used[p] * hz * max(0, 1 - used[p] / SECONDS)) / hz
        assert abs(cpu_seconds(own) - used[p]) < 0.03 * used[p] + 3 * chance + 2 / hz, (hz, used, values(own))
        for s in own:
            assert IDENTITY <= set(s["resource"]), s["resource"]
            assert s["resource"]["k8s.pod.name"] == p.name and s["resource"]["k8s.pod.uid"] == p.uid
            assert s["resource"]["container.image.repo_digests"] == ["registry.example/orchard@sha256:1"]
            assert told.items() <= s["resource"].items(), s["resource"]
            assert len(s["resource"]) <= 30
    assert used[off] > 0.1 and of(samples, off) == []
    assert operator.tokens[0] == "Bearer a-token"


def moments(samples):
    """(UNIX time in seconds, period in ns) of every timestamp, sorted."""
    return sorted((t / 1e9, s["period"][2]) for s in samples for t in s["timestamps"])


def test_change_of_policy_is_live(agent, collector, operator, pod):
    p = Pod(4, policy=20)
    operator.tell(policies={20: (True, 20), 97: (True, 97), 1: (False, 20)}, pods=[p])
    collector.start()
    a = agent(config=configuration(operator, collector, timestamps=True))
    profiling(a)
    operator.connected()
    busy = pod(p)
    phases = []
    for policy in (20, 97, 1, 97, 20):
        p.policy = policy
        begin = time.time()
        operator.tell(pods=[p])
        told = time.time()  # on a busy machine the update takes a while
        time.sleep(6)
        phases.append((begin, told, time.time(), policy > 1 and period(policy)))
    busy.end()
    time.sleep(1)
    assert a.stop() == 0, a.stderr()
    seen = moments(of(collector.samples(), p))
    assert a.process.returncode == 0 and len(seen) > 30
    for begin, told, end, each in phases:
        settled = [s for s in seen if told + 2 <= s[0] < end]
        assert {s[1] for s in settled} == ({each} if each else set()), (each, dump(settled))
        if each:
            assert seen[0][0] < told + 2 or any(begin <= s[0] < told + 2 and s[1] == each for s in seen)


@pytest.mark.parametrize("when_unknown", ["hold", "default"])
def test_samples_of_an_unknown_pod_wait_for_its_policy(agent, collector, operator, pod, when_unknown):
    late, never, forbidden = Pod(5, policy=20), Pod(6, policy=20), Pod(7, policy=1)
    operator.tell(policies={20: (True, 20), 1: (False, 20)}, default=(True, 50))
    collector.start()
    a = agent(config=configuration(operator, collector, interval="4s", more=f", when_unknown: {when_unknown}"))
    profiling(a)
    operator.connected()
    for p in (late, never, forbidden):
        pod(p)
    time.sleep(1)
    operator.tell(pods=[late, forbidden])
    time.sleep(11 if when_unknown == "default" else 19)
    assert a.stop() == 0, a.stderr()
    samples = collector.samples()
    # Samples were taken with the default rate before, with the pod's own rate afterwards; all have the pod's name.
    assert {s["resource"].get("k8s.pod.name") for s in of(samples, late)} == {late.name}
    assert {s["period"][2] for s in of(samples, late)} == {period(50), period(20)}
    assert of(samples, forbidden) == []
    own = of(samples, never)
    if when_unknown == "hold":
        assert own == []
        return
    assert own and {s["resource"].get("k8s.pod.name") for s in own} == {None}
    assert {s["resource"]["k8s.pod.uid"] for s in own} == {never.uid}
    assert {s["period"][2] for s in own} == {period(50)}


def test_a_fresh_node_exports_nothing_before_the_operator_is_heard(agent, collector, operator, pod, tmp_path):
    """Without a snapshot and without an operator all samples are held and dropped, those of processes outside of pods too."""
    operator.server.stop(0).wait()
    collector.start()
    a = agent(config=configuration(operator, collector, hz=97).replace('process_filter: "^policy-"', "off_cpu_threshold: 0"))
    profiling(a)
    pod(Pod(10, policy=20))
    time.sleep(8)
    assert a.stop() == 0, a.stderr()
    assert collector.samples() == []


@pytest.mark.parametrize("situation", ["never heard", "gone", "opt-in", "5000 policies"])
def test_nothing_leaves_of_who_has_no_policy(agent, collector, operator, pod, situation):
    """No sample leaves of a pod whose policy is off, or of unknown pods, which come and go. The situations: the operator is
    never reached; it goes away after its snapshot; the default is off; it has more policies than the kernel's map holds."""
    on, off, numbers = Pod(20, policy=20), Pod(21, policy=1), itertools.count(22)
    many = range(1000, 6000) if situation == "5000 policies" else ()
    policies = {20: (True, HITS_HZ), 1: (False, 20)} | {i: (True, 1 + i % HITS_HZ) for i in many}
    if situation == "never heard":
        operator.server.stop(0).wait()
    operator.tell(policies=policies, pods=[on, off] + [Pod(i, policy=i) for i in many],
                  default=(situation != "opt-in", HITS_HZ))
    collector.start()
    a = agent(config=configuration(operator, collector, hz=HITS_HZ))
    profiling(a)
    if situation != "never heard":
        operator.connected()
    if situation == "gone":
        operator.server.stop(0).wait()
    busy = {p: pod(p, seconds=36000) for p in (on, off)}  # long enough for all hits on a busy machine
    until, untold = time.monotonic() + (OUTAGE if situation == "gone" else 0), 0
    while time.monotonic() < until or min(untold, busy[off].used()) * HITS_HZ < HITS:
        stranger = pod(Pod(next(numbers), policy=20))
        time.sleep(2)
        untold += stranger.end()
    hits = {"off": int(busy[off].end() * HITS_HZ), "untold": int(untold * HITS_HZ)}
    assert a.stop() == 0, a.stderr()
    samples = collector.samples()
    print(f"{situation}: timer hits {hits}, {len(of(samples, on))} samples of the pod that is on")
    assert {s["resource"].get("container.id") for s in samples} == (
        set() if situation == "never heard" else {on.container_id})


@pytest.fixture
def outside(program):
    """The busy loop outside of all pods."""
    process = subprocess.Popen([program, "300"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    yield process
    process.kill()
    process.wait()


def test_default_policy_is_for_the_node_itself(agent, collector, operator, pod, outside):
    p = Pod(8, policy=20)
    operator.tell(policies={20: (True, 20)}, pods=[p], default=(False, 20))
    collector.start()
    a = agent(config=configuration(operator, collector, hz=97))
    profiling(a)
    operator.connected()
    time.sleep(2)
    before = time.time_ns()
    pod(p)
    time.sleep(5)
    assert outside.poll() is None
    assert a.stop() == 0, a.stderr()
    samples = [s for s in collector.samples() if s["start"] > before + 1_500_000_000]
    assert of(samples, p) and of(samples, p) == samples


def test_report_tells_what_holds_here(agent, collector, operator, pod):
    p = Pod(9, policy=20)
    operator.tell(policies={20: (True, 20)}, pods=[p])
    collector.start()
    a = agent(config=configuration(operator, collector))
    profiling(a)
    operator.connected()
    pod(p)
    report = wait_until("a report with the container", lambda: next(
        (r for r in operator.reports if r.samples and any(x.id == 20 and x.containers == 1 for x in r.policies)), None))
    assert report.started > 0
    assert a.stop() == 0, a.stderr()
