# SPDX-License-Identifier: Apache-2.0
"""Probes: a real agent counts a known number of calls, and attributes them to their callers."""
import math
import os
import pathlib
import subprocess
import sys
import time

import pytest

from node_operator import Operator, Pod
from parts import HERE, ContainerCgroup, agent as kiln, free_port, profiling, textdump, wait_until

LIBC = "/lib/x86_64-linux-gnu/libc.so.6"
CPUS = os.cpu_count()


class Probed:
    """The program probed.c as a process that executes the commands of do()."""

    def __init__(self, path, before=None):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
                                        preexec_fn=before)
        self.pid = self.process.pid
        self._answered()

    def _answered(self):
        assert self.process.stdout.readline() == "done\n"

    def do(self, what, n):
        self.process.stdin.write(f"{what} {n}\n")
        self._answered()

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("probed") / "probed"
    subprocess.run(["cc", "-O1", "-Wall", "-Werror", "-o", path, HERE / "probed.c"], check=True)
    return str(path)


@pytest.fixture
def probed(program):
    p = Probed(program)
    yield p
    p.close()


def start(agent, *probes, **options):
    a = agent("--stdout", "--reporter-interval", "1s", *(w for p in probes for w in ("--probe", p)), **options)
    profiling(a)
    return a


def of(a, probe, pid=None):
    """Stops the agent; the samples of PROBE (of process PID only, when given)."""
    assert a.stop() == 0, a.stderr()
    return [s for s in a.samples() if s.type == probe and pid in (None, s.pid)]


def introduce(probed):
    """Makes two rounds of calls, so that the agent has the program's unwind tables for the calls that follow."""
    for _ in range(2):
        probed.do("call", 1)
        time.sleep(1)


def total(samples):
    return sum(s.value for s in samples)


def by_caller(samples, leaf):
    """{caller of LEAF: hits}; LEAF None: the leaf itself is the caller. Every stack must be complete."""
    out = {}
    for s in samples:
        assert s.user[-1] == "_start" and "main" in s.user, s.frames
        if leaf:
            assert s.user[0] == leaf, s.frames
        caller = s.user[1 if leaf else 0]
        out[caller] = out.get(caller, 0) + s.value
    return out


def test_each_call_is_a_sample(agent, program, probed):
    probe = f"uprobe:{program}:leaf"
    a = start(agent, probe + ",rate=10000")
    introduce(probed)
    probed.do("call", 250)
    samples = of(a, probe, probed.pid)
    assert by_caller(samples, "leaf") == {"often": 756, "seldom": 252}
    assert all(not s.kernel for s in samples)


def test_returns_are_counted_at_the_caller(agent, program, probed):
    probe = f"uretprobe:{program}:leaf"
    a = start(agent, probe + ",rate=10000")
    introduce(probed)
    probed.do("call", 250)
    assert by_caller(of(a, probe, probed.pid), None) == {"often": 756, "seldom": 252}


def test_more_calls_than_the_rate_are_drawn_and_the_sum_stays(agent, program, probed):
    probe, port = f"uprobe:{program}:leaf", free_port()
    config = f"""
receivers:
  profiling: {{reporter_interval: 1s, probes: ["{probe}"]}}
exporters:
  customprofilesexporter: {{export_sample_attributes: true, export_stack_frames: true, export_profile_attributes: true,
                            export_resource_attributes: true, ignore_profiles_without_container_id: false}}
extensions:
  health_check: {{endpoint: "127.0.0.1:{port}"}}
service:
  extensions: [health_check]
  pipelines:
    profiles: {{receivers: [profiling], exporters: [customprofilesexporter]}}
"""
    a = agent(config=config)
    profiling(a)
    introduce(probed)
    hits, before = 40_000, time.monotonic()
    probed.do("call", hits // 4 - 2)
    seconds = time.monotonic() - before
    told = kiln.metrics(f"http://127.0.0.1:{port}/metrics")
    labels = f'{{probe="{probe}"}}'
    assert told["kiln_probe_hits_total" + labels] == hits
    taken = told["kiln_probe_samples_total" + labels]
    assert taken <= CPUS * (100 * seconds * 1.1 + 50) and taken >= 20, (taken, seconds)
    assert told["kiln_probe_attached" + labels] == 1
    assert told[f'kiln_probe_dropped_total{{probe="{probe}",reason="ring_full"}}'] == 0
    samples = of(a, probe, probed.pid)
    # The sum lacks the open block of each CPU, and is off by a block that was closed late: bpf/draw.h.
    assert abs(total(samples) - hits) <= 0.05 * hits, (total(samples), hits, taken)
    callers = by_caller(samples, "leaf")
    assert set(callers) == {"often", "seldom"}
    # Allow five standard errors of the share; a sample stands for at most twice the mean number of hits.
    error = math.sqrt(0.25 * 0.75 * taken) * 2 * hits / taken
    assert abs(callers["often"] - 0.75 * total(samples)) <= 5 * error, (callers, error)


def test_malloc_of_libc(agent, probed):
    probe, hits = f"uprobe:{LIBC}:malloc", 300_000
    a = agent("--stdout", "--reporter-interval", "1s", "--probe", probe + ",rate=1000", "--pid", probed.pid)
    profiling(a)
    introduce(probed)
    probed.do("malloc", 1)
    time.sleep(1)
    probed.do("malloc", hits)
    samples = of(a, probe)
    assert {s.pid for s in samples} == {probed.pid}
    # One hit of each block became a sample; the sum lacks the open blocks.
    assert abs(total(samples) - hits) <= 0.05 * hits, total(samples)
    mine = [s for s in samples if "take_memory" in s.user]
    assert total(mine) > 0.99 * total(samples)
    # The PLT stub may be between malloc and its caller while the dynamic linker resolves the symbol.
    assert all(s.user[0] in ("malloc", "__libc_malloc") and s.user[-1] == "_start" for s in mine)


PYTHON = """
import os, sys
def often():
    for _ in range(3): os.getppid()
def seldom():
    os.getppid()
def work(n):
    for _ in range(n):
        often(); seldom()
for line in sys.stdin:
    work(int(line)); print("done", flush=True)
"""


def test_a_python_program_is_named_at_its_call(agent):
    probe = f"uprobe:{LIBC}:getppid"
    child = subprocess.Popen([sys.executable, "-c", PYTHON], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                             bufsize=1)
    try:
        a = agent("--stdout", "--reporter-interval", "1s", "--probe", probe + ",rate=10000", "--pid", child.pid)
        profiling(a)

        def call(n):
            child.stdin.write(f"{n}\n")
            assert child.stdout.readline() == "done\n"

        # As soon as a sample has Python's names, the agent knows the mappings and the walker is loaded.
        def is_named():
            call(1)
            time.sleep(1.1)
            return "Function: often" in a.stdout()

        wait_until("Python is walked", is_named)
        time.sleep(2)
        before = total(s for s in textdump.parse(a.stdout().splitlines()) if s.type == probe)
        call(100)
        samples = of(a, probe)
        assert total(samples) == before + 400
        late, seen = [], 0
        for s in samples:  # window by window, in the order of sampling
            seen += s.value
            if seen > before:
                late.append(s)
        callers = {}
        for s in late:
            assert s.user[0] in ("getppid", "__getppid"), s.frames
            names = [n for kind, n in s.frames if kind == "cpython"]
            assert names[1:3] == ["work", "<module>"], s.frames
            assert s.user[-1] == "_start", s.frames
            callers[names[0]] = callers.get(names[0], 0) + s.value
        assert callers == {"often": 300, "seldom": 100}
    finally:
        child.stdin.close()
        child.wait()
        child.stdout.close()


WITHOUT_TRACEFS = ("unshare", "--mount", "sh", "-c",
                   'umount -q -R /sys/kernel/tracing; umount -q -R /sys/kernel/debug; exec "$@"', "sh")
WITH_TRACEFS = ("unshare", "--mount", "sh", "-c", 'umount -q -R /sys/kernel/tracing; mount -t tracefs none /sys/kernel/tracing && exec "$@"', "sh")


@pytest.mark.parametrize("prefix", [WITHOUT_TRACEFS, WITH_TRACEFS], ids=["no_tracefs", "tracefs"])
def test_a_tracepoint_is_counted_with_its_kernel_stack(agent, probed, prefix):
    probe = "tracepoint:sched:sched_process_exec"
    a = start(agent, probe + ",rate=10000", prefix=prefix)
    probed.do("exec", 30)
    samples = of(a, probe, probed.pid)
    assert total(samples) == 30
    for s in samples:
        assert any("execve" in name for name in s.kernel), s.frames
        assert not any(name.startswith(("bpf_", "__traceiter")) for name in s.kernel), s.frames


@pytest.mark.parametrize("probe, code, message", [
    ("uprobe:/no/such/file:f", 2, "/no/such/file: No such file or directory (the path is one of the host's)"),
    ("uprobe:PROGRAM:no_such_function", 2, "no function no_such_function in its symbol tables"),
    ("uprobe:/etc/passwd:f", 2, "/etc/passwd: "),
    (f"uprobe:{LIBC}:memcpy", 3, "memcpy is an indirect function"),
    ("tracepoint:sched:no_such_tracepoint", 2, "the kernel has no tracepoint no_such_tracepoint"),
    ("tracepoint:syscalls:sys_enter_read", 3, "tracepoint:raw_syscalls:sys_enter"),
    ("malloc", 2, "--probe: want uprobe:PATH:FUNCTION"),
])
def test_what_cannot_be_is_said(agent, program, probe, code, message):
    a = agent("--stdout", "--duration", "1s", "--probe", probe.replace("PROGRAM", program))
    assert a.wait() == code, a.stderr()
    assert message in a.stderr().strip().splitlines()[-1]


def test_a_kprobe_counts_or_says_that_the_kernel_has_none(agent, probed):
    if os.path.exists("/sys/bus/event_source/devices/kprobe"):
        a = start(agent, "kprobe:begin_new_exec,rate=10000")
        probed.do("exec", 30)
        assert total(of(a, "kprobe:begin_new_exec", probed.pid)) == 30
        return
    a = agent("--stdout", "--duration", "1s", "--probe", "kprobe:vfs_read")
    assert a.wait() == 3
    assert "this kernel has no kprobes: it was built without CONFIG_KPROBES" in a.stderr()


def test_pods_whose_policy_is_off_give_nothing(agent, program, tmp_path):
    operator = Operator(tmp_path)
    on, off = Pod(1, policy=20), Pod(2, policy=1)
    operator.tell(policies={20: (True, 20), 1: (False, 20)}, pods=[on, off])
    cgroups, programs = {}, {}
    try:
        for pod in (on, off):
            cgroups[pod] = ContainerCgroup(pod.path, ["", "memory"])
            leaves = cgroups[pod].leaves

            def join(leaves=leaves):
                for leaf in leaves:
                    pathlib.Path(leaf, "cgroup.procs").write_text("0")

            programs[pod] = Probed(program, join)
        probe = f"uprobe:{program}:leaf"
        config = f"""
receivers:
  profiling: {{reporter_interval: 1s, probes: ["{probe},rate=10000"]}}
processors:
  k8sattributes: {{operator: {operator.settings()}}}
exporters:
  customprofilesexporter: {{export_sample_attributes: true, export_stack_frames: true, export_profile_attributes: true,
                            export_resource_attributes: true, ignore_profiles_without_container_id: false}}
service:
  pipelines:
    profiles: {{receivers: [profiling], processors: [k8sattributes], exporters: [customprofilesexporter]}}
"""
        a = agent(config=config)
        profiling(a)
        operator.connected()
        for pod in (on, off):
            programs[pod].do("call", 100)
        time.sleep(3)
        samples = of(a, probe)
        assert {s.resource.get("k8s.pod.name") for s in samples} == {on.name}
        assert {s.pid for s in samples} == {programs[on].pid}
        assert total(samples) == 400
    finally:
        for p in programs.values():
            p.close()
        for c in reversed(cgroups.values()):  # the first cgroup made the parent directories, so it is removed last
            c.close()
        operator.close()
