# SPDX-License-Identifier: Apache-2.0
"""
Programs that wait in known places: the agent's off-CPU time of each thread is compared with the clock and
/proc/PID/task/TID/schedstat, which the program reads itself.
"""
import collections
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))
from kiln import agent, textdump, workload  # noqa: E402

SECONDS = 6
RESULTS_MARGIN_NS = 5_000_000  # a thread's time before and after its own measurement


# On a busy machine totals are sometimes off by more than 2 %; the cause is unknown.
exact = pytest.mark.skipif(os.environ.get("KILN_LONG") != "1", reason="needs an idle machine: KILN_LONG=1")


class Program:
    def __init__(self, *command):
        self.process = subprocess.Popen([str(c) for c in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = json.loads(self.process.stdout.readline())["pid"]

    def go(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def result(self):
        return json.loads(self.process.stdout.readline())

    def end(self, kill=False):
        self.process.stdin.close()
        if kill:
            self.process.kill()
        self.process.wait(20)


class Profile:
    """The off-CPU samples in the dump of one run."""

    def __init__(self, text):
        self.samples = [s for s in textdump.parse(text.splitlines()) if "off_cpu.cause" in s.attributes]

    def thread(self, tid):
        return sum(s.value for s in self.samples if s.tid == tid)

    def within(self, tid, function):
        """Off-CPU ns of thread TID in FUNCTION, or in a runtime before its structures were read or its walker was loaded."""
        early = {f"[{runtime}: {what}]" for runtime in ("python", "hotspot") for what in ("not read yet", "walker not loaded")}
        return sum(s.value for s in self.samples if s.tid == tid and (function in s.user or early & set(s.user)))

    def causes(self, tid):
        of = collections.Counter()
        for s in self.samples:
            if s.tid == tid:
                of[s.attributes["off_cpu.cause"]] += s.value
        return of


def profiled(program, *options):
    """Runs PROGRAM under the agent: (the program's own result, the Profile)."""
    a = agent.Agent("--off-cpu", "--pid", program.pid, "--reporter-interval", "2s", "--stdout", *options)
    try:
        deadline = time.monotonic() + 60
        while "profiling at" not in a.stderr():
            assert a.process.poll() is None and time.monotonic() < deadline, a.stderr()
            time.sleep(0.05)
        time.sleep(0.2)
        program.go()
        said = program.result()
        time.sleep(0.5)
        assert a.stop() == 0, a.stderr()
        with open(a.out_path, encoding="utf-8") as f:
            return said, Profile(f.read())
    finally:
        a.close()
        program.end()


def check(said, profile, within=0.97):
    for function, truth in said.items():
        got = profile.thread(truth["tid"])
        assert abs(got - truth["off"]) <= truth["off"] * 0.02 + RESULTS_MARGIN_NS, (function, got, truth)
        assert profile.within(truth["tid"], function) >= got * within, (
            function, [(s.value, s.user) for s in profile.samples if s.tid == truth["tid"] and function not in s.user])


@pytest.fixture
def file(tmp_path):
    path = pathlib.Path("/var/tmp") / f"kiln-waits-{os.getpid()}"
    path.write_bytes(os.urandom(8 << 20))
    yield path
    path.unlink()


@exact
def test_threads_of_a_c_program(file):
    said, profile = profiled(Program(workload.path("waits"), SECONDS, file))
    check(said, profile)
    causes = {name: profile.causes(t["tid"]).most_common(1)[0][0] for name, t in said.items()}
    assert causes == {"wait_mutex": "lock", "wait_holding": "sleep", "wait_deadlocked": "lock", "wait_epoll": "poll",
                      "wait_sleep": "sleep", "wait_short": "sleep", "wait_mixed": "sleep", "wait_pipe": "pipe",
                      "wait_writing": "sleep", "wait_disk": "disk"}
    # Waits of 80 ms among many of 0.5 ms, in another place.
    mixed = said["wait_mixed"]
    share = profile.within(mixed["tid"], "wait_mixed_long") / mixed["off"]
    assert abs(share - mixed["long"] / mixed["off"]) < 0.05, (share, mixed)
    # The lock is never released: this is one long wait, of which every window shows its part.
    dead = [s.value for s in profile.samples if s.tid == said["wait_deadlocked"]["tid"]
            and "wait_deadlocked" in s.user]
    assert len(dead) >= 3 and max(dead) < 2_500_000_000, dead


@exact
def test_a_thread_that_switches_very_often():
    """Waits of 1 and of 10 us, in two places: a walk takes longer than the short ones, and must not count as waiting."""
    said, profile = profiled(Program(workload.path("waits"), SECONDS, os.devnull, "wait_often"), "--off-cpu-threshold", "0.2")
    check(said, profile)
    often = said["wait_often"]
    share = profile.within(often["tid"], "wait_often_long") / profile.thread(often["tid"])
    # The program's own figure has what it ran in that place; and a walk pushes others' data out of the caches.
    assert abs(share - often["long"] / often["off"]) < 0.2, (share, often)


def test_a_program_that_only_waits_is_known(file):
    """The list of threads that wait may tell of a process before its first wait is walked. The process has to be known to
    the kernel from then on: no later walk may lack its mappings."""
    said, profile = profiled(Program(workload.path("waits"), SECONDS, file))
    mine = [s for s in profile.samples if s.tid in {t["tid"] for t in said.values()}]
    unknown = sum(s.value for s in mine if s.user[-1] == "[incomplete: process not known]")
    assert mine and unknown <= 0.02 * sum(s.value for s in mine), (unknown, sum(s.value for s in mine))


@exact
def test_threads_of_a_python_program():
    said, profile = profiled(Program(sys.executable, HERE / "waits.py", SECONDS))
    check(said, profile)


@exact
@pytest.mark.skipif(not shutil.which("javac"), reason="no JDK")
def test_threads_of_a_java_program(tmp_path):
    subprocess.run(["javac", "-d", tmp_path, HERE / "Waits.java"], check=True)
    said, profile = profiled(Program("java", "-cp", tmp_path, "Waits", SECONDS))
    check(said, profile)


@pytest.fixture
def quota():
    """A cgroup that may use a fifth of one CPU: its file of processes. Of cgroup v1, as the machine's are."""
    path = pathlib.Path(f"/sys/fs/cgroup/cpu/kiln-waits-{os.getpid()}")
    if not (path.parent / "cpu.cfs_quota_us").exists():
        pytest.skip("no cgroup v1 with CPU quotas")
    path.mkdir()
    (path / "cpu.cfs_quota_us").write_text("20000")
    yield path / "cgroup.procs"
    while (path / "cgroup.procs").read_text():
        time.sleep(0.1)
    path.rmdir()


@exact
def test_who_has_used_up_a_quota_waits_for_the_run_queue(quota):
    program = Program(workload.path("waits"), SECONDS, os.devnull, "wait_quota")
    quota.write_text(str(program.pid))
    said, profile = profiled(program)
    check(said, profile)
    truth = said["wait_quota"]
    assert truth["off"] > 0.7 * SECONDS * 1e9, truth
    causes = profile.causes(truth["tid"])
    assert causes["run queue"] > 0.97 * sum(causes.values()), causes


@exact
@pytest.mark.skipif(not shutil.which("go"), reason="no Go")
def test_threads_of_a_go_program(tmp_path):
    binary = tmp_path / "waits"
    subprocess.run(["go", "build", "-o", binary, HERE / "go" / "waits.go"], check=True,
                   env={**os.environ, "GOFLAGS": "-mod=mod", "GO111MODULE": "off"})
    said, profile = profiled(Program(binary, SECONDS))
    for function, truth in said.items():
        # Go's main thread stays after the function has ended and waits in the runtime, so only waits in the function count.
        got = profile.within(truth["tid"], function)
        assert abs(got - truth["off"]) <= truth["off"] * 0.02 + RESULTS_MARGIN_NS, (function, got, truth)


def test_who_waits_since_before_is_shown():
    """Two deadlocked threads, and others that are never woken: they wait since before the agent started, so that no context
    switch tells of them."""
    program = Program(workload.path("sleepers"), 20)
    a = agent.Agent("--off-cpu", "--pid", program.pid, "--reporter-interval", "2s", "--duration", "7s", "--stdout")
    try:
        assert a.wait() == 0, a.stderr()
        with open(a.out_path, encoding="utf-8") as f:
            profile = Profile(f.read())
    finally:
        a.close()
        program.end(kill=True)
    waits = collections.Counter()
    for s in profile.samples:
        assert s.user[-1] in ("_start", "clone3", "__clone"), s.user
        place = next(f for f in s.user if f in ("has_first", "has_second", "one_of_many", "wait_for_ever"))
        waits[place, s.tid, s.attributes["off_cpu.cause"]] += s.value
    assert collections.Counter((place, cause) for place, _, cause in waits) == {
        ("has_first", "lock"): 1, ("has_second", "lock"): 1, ("wait_for_ever", "signal"): 1, ("one_of_many", "signal"): 20}
    # The waits count from the agent's first look at the threads to its end.
    assert all(4e9 < value < 7.5e9 for value in waits.values()), waits


def test_without_the_switch_nothing_is_attached_and_nothing_waits():
    program = Program(workload.path("waits"), 1, os.devnull)
    a = agent.Agent("--pid", program.pid, "--duration", "2s", "--stdout")
    try:
        time.sleep(1)
        assert "on_switch" not in subprocess.run(["bpftool", "prog"], capture_output=True, text=True).stdout
        assert a.wait() == 0
        with open(a.out_path, encoding="utf-8") as f:
            assert not Profile(f.read()).samples
    finally:
        a.close()
        program.end()
