# SPDX-License-Identifier: Apache-2.0
"""A flood on the node stream's port (flood.py) costs the operator little and does not disturb agents. KILN_LONG=1: 60 s for
each mode, and half an hour of the fuzzer (mode noise)."""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import pytest
from conftest import NAMESPACE, program
from test_stream import live, make_pod, nodes, run_container  # noqa: F401

FLOOD = pathlib.Path(__file__).parent / "flood.py"
LONG = os.environ.get("KILN_LONG")
SECONDS, FUZZ_SECONDS = (60, 1800) if LONG else (8, 8)
MEMORY_MAX = 64 << 20
REVIEWS_RATE = 10  # token reviews a second, and as many in one burst
SAMPLES = 15
FLOODS = [("bare", 10000, 1), ("hello", 10000, 5000), ("idle", 10000, 1), ("idle", 10000, 5000), ("junk", 300, 1),
          ("junk", 300, 300), ("reset", 100, 1), ("reset", 100, 100), ("bomb", 100, 100), ("frames", 100, 1), ("slow", 600, 1)]


class Memory:
    """Measures the growth of the operator's memory, including its sockets' where a memory cgroup can be made."""

    def __init__(self, pid):
        self.pid, self.group = pid, None
        for root, probe in (("/sys/fs/cgroup/memory", "memory.kmem.usage_in_bytes"),
                            ("/sys/fs/cgroup", "memory.stat")):
            group = pathlib.Path(root) / f"kiln-flood-{pid}"
            if not self.group and (group.parent / "cgroup.procs").exists():
                group.mkdir()
                self.group = group
                if not (group / probe).exists():
                    group.rmdir()
                    self.group = None
        if self.group:
            (self.group / "cgroup.procs").write_text(str(pid), encoding="utf-8")
            tcp = self.group / "memory.kmem.tcp.limit_in_bytes"  # cgroup v1 accounts TCP memory only under a limit
            if tcp.exists():
                tcp.write_text(str(1 << 40), encoding="utf-8")
        with open(f"/proc/{pid}/maps", encoding="utf-8") as f:
            self.sanitized = any("libasan" in line or "libtsan" in line for line in f)
        self.before = self.rss()

    def rss(self):
        with open(f"/proc/{self.pid}/status", encoding="utf-8") as f:
            return next(int(line.split()[1]) << 10 for line in f if line.startswith("VmRSS"))

    def kernel(self):
        """The kernel's memory for the process since it entered the cgroup: sockets, their buffers and related objects."""
        if not self.group:
            return 0
        lines = (self.group / "memory.stat").read_text(encoding="utf-8").splitlines()
        total = sum(int(line.split()[1]) for line in lines if line.split()[0] in ("kernel", "sock"))
        for name in ("memory.kmem.usage_in_bytes", "memory.kmem.tcp.usage_in_bytes"):
            if (self.group / name).exists():
                total += int((self.group / name).read_text(encoding="utf-8"))
        return total

    def more(self):
        return self.rss() - self.before + self.kernel()


@pytest.fixture
def measure():
    """measure(pid): a Memory. Must precede `serve` in a test, so that the operator has ended when the cgroup is removed."""
    made = []

    def measure(pid):
        made.append(Memory(pid))
        return made[-1]

    yield measure
    for memory in made:
        if memory.group:
            memory.group.rmdir()


@pytest.fixture(scope="module")
def numbers():
    return iter(range(1, 1 << 30))


def latency(cluster, agent, numbers):
    """(median, maximum) ms from before a change of a pod until the agent is told."""
    times = []
    for _ in range(SAMPLES):
        container = f"{next(numbers):064x}"
        began = time.monotonic()
        run_container(cluster, "shop", "web", container)
        at = agent.until("a change", lambda a: any(c["id"] == container for p in a.pods.values()  # noqa: B023
                                                   for c in p["containers"]))
        times.append((at - began) * 1e3)
        time.sleep(0.02)
    return statistics.median(times), max(times)


def begin_flood(*words):
    return subprocess.Popen([sys.executable, FLOOD, *map(str, words)], stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("mode,connections,addresses", FLOODS, ids=[f"{m}-{a}" for m, _, a in FLOODS])
def test_a_flood_is_not_noticed(cluster, nodes, measure, serve, connect, token, numbers,  # noqa: F811
                                mode, connections, addresses):
    operator, port = serve()
    a = connect(port, token("agent-n1"))
    a.until("snapshot", live)
    before = latency(cluster, a, numbers)
    memory, reviews = measure(operator.process.pid), operator.metric("kiln_stream_token_reviews_total")
    most, began = 0, time.monotonic()
    flood = begin_flood(mode, port, connections, addresses, SECONDS)
    try:
        while time.monotonic() < began + SECONDS / 2:
            most = max(most, memory.more())
            time.sleep(0.1)
        during = latency(cluster, a, numbers)
        joining = time.monotonic()
        b = connect(port, token("agent-n2"))
        b.until("snapshot of an agent that comes during the flood", live)
        joined = time.monotonic() - joining
        most = max(most, memory.more())
    finally:
        done = json.loads(flood.communicate(timeout=program.WAIT)[0] or "{}")
    took = time.monotonic() - began
    reviews = operator.metric("kiln_stream_token_reviews_total") - reviews
    ended = {line.split('"')[1]: float(line.split()[-1]) for line in operator.metrics().splitlines()
             if line.startswith("kiln_stream_connections_ended_total") and not line.endswith(" 0")}
    print(f"{mode} from {addresses}: {done}; {most / (1 << 20):.1f} MiB more, of it {memory.kernel() / (1 << 20):.1f} of "
          f"the kernel's at the end; {before[0]:.1f} (slowest {before[1]:.1f}) -> {during[0]:.1f} ({during[1]:.1f}) ms; "
          f"joined in {joined * 1e3:.0f} ms; {reviews:.0f} reviews in {took:.0f} s; {ended}")
    assert done["connections"] >= connections and (done["calls"] or mode in ("bare", "hello", "idle"))
    assert memory.sanitized or most <= MEMORY_MAX
    assert reviews <= REVIEWS_RATE * (took + 1) + 2
    assert a.closed is None and b.closed is None
    assert during[0] < 5 * before[0] + 1000
    program.wait_until("the end of all unauthenticated connections",
                       lambda: operator.metric("kiln_stream_connections", state="outside") == 0 ==
                       operator.metric("kiln_stream_connections", state="opened"))
    assert operator.metric("kiln_stream_connections", state="granted") == 2


def test_a_fuzzer_on_the_port_harms_nobody(cluster, nodes, serve, connect, token, numbers):  # noqa: F811
    """The operator survives the fuzzer (with ASan: without a report), and serves an agent all the time."""
    cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n3"}})
    make_pod(cluster, NAMESPACE, "agent-n3", "n3", "kiln-agent")
    operator, port = serve()
    a = connect(port, token("agent-n1"))
    a.until("snapshot", live)
    granted = operator.metric("kiln_stream_auth_total", result="granted")
    fuzzer = begin_flood("noise", port, 100, 50, FUZZ_SECONDS, token("agent-n3"))
    came = time.monotonic()
    while fuzzer.poll() is None:
        latency(cluster, a, numbers)
        time.sleep(1)
        if time.monotonic() > came + 300:  # the operator ends each stream after half an hour
            a.stop()
            a, came = connect(port, token("agent-n1")), time.monotonic()
            a.until("snapshot", live)
    done = json.loads(fuzzer.stdout.read())
    print(done, [line for line in operator.metrics().splitlines() if "_ended_total" in line or "_cuts_total" in line])
    assert fuzzer.returncode == 0 and done["calls"] > 1000
    assert operator.metric("kiln_stream_auth_total", result="granted") > granted + 10  # behind the token, too
    assert operator.metric("kiln_stream_cuts_total", reason="bad_message") > 10
    assert a.closed is None and operator.ready()
