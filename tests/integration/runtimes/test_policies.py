# SPDX-License-Identifier: Apache-2.0
"""Two policies on one node, one of which disables the tracers of languages: neither the kernel nor the agent reads any memory
of the interpreter of a Python process under that policy, while other processes' Python frames are shown. The tracers of Java,
Ruby, PHP and Perl are switched off and on while programs run."""
import collections
import json
import os
import re
import subprocess
import sys
import threading
import time

import pytest

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "agent"))
from node_operator import Operator, Pod  # noqa: E402
from parts import ContainerCgroup, agent, profiling, wait_until  # noqa: E402
import hotspot_stacks  # noqa: E402
import perl_stacks  # noqa: E402
import php_stacks  # noqa: E402
import python_stacks  # noqa: E402
import ruby_stacks  # noqa: E402

ON, OFF = 1, 2
PROGRAMS = os.environ.get("KILN_RUNTIME_PROGRAMS", "")
FRAME = re.compile(r"Instrumentation: ([a-z0-9-]+), Function: ([^,\n]*)")
WHOLE = {"_start", "JavaMain"}  # outermost functions: Java's main() has a thread of its own, in a libc without symbols
PORT = 13990 + os.getpid() % 90


class Node(Operator):
    def _policy(self, policy_id):
        policy = super()._policy(policy_id)
        policy.disabled_tracers.extend(["jvm", "python", "ruby", "php", "perl"] if policy_id == OFF else [])
        return policy


class InPod:
    """A program that is in a pod's container (POD None: in none) from its first instruction on. `said`: its JSON output."""

    def __init__(self, pod, *command):
        self.cgroup, self.said = ContainerCgroup(pod.path, ["", "memory"]) if pod else None, []
        join = "; ".join(f"echo $$ > {leaf}/cgroup.procs" for leaf in self.cgroup.leaves) if pod else ":"
        self.process = subprocess.Popen(["sh", "-c", f'{join}; exec "$@"', "sh", *command], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, text=True)
        self.thread = threading.Thread(target=self.listen, daemon=True)
        self.thread.start()

    def listen(self):
        for line in self.process.stdout:
            self.said.append((time.monotonic(), json.loads(line)))

    def reads(self, begin, end):
        """The program's own reports, between two times, of how much of its structures was read since the last report."""
        return [said["read"] for at, said in list(self.said) if "read" in said and begin < at < end]

    def end(self):
        self.process.kill()
        self.process.wait()
        self.thread.join()
        if self.cgroup:
            self.cgroup.close()


class Output:
    """Reads the output of a running agent: {pid: {(type, name): samples}}."""

    def __init__(self, a):
        self.frames, self.rest = collections.defaultdict(collections.Counter), ""
        self.file = open(a.out_path, encoding="utf-8", errors="replace")

    def read(self):
        *whole, self.rest = re.split(r"(?m)(?<=End Sample)(?= -+$\n)", self.rest + self.file.read())
        for one in whole:
            if pid := re.search(r"^  process\.pid: (\d+)", one, re.M):
                self.frames[int(pid[1])].update(set(FRAME.findall(one)))
        return self.frames


def is_pythons(frame):
    return frame[0] == "cpython" or frame[0] == "abort-marker" and "python" in frame[1]


def config(operator, programs="python"):
    return f"""
receivers:
  profiling: {{samples_per_second: 97, reporter_interval: 1s, process_filter: "^({programs})"}}
processors:
  k8sattributes: {{operator: {operator.settings()}}}
exporters:
  debug: {{}}
extensions:
  health_check: {{endpoint: "127.0.0.1:{PORT}"}}
service:
  extensions: [health_check]
  pipelines:
    profiles: {{receivers: [profiling], processors: [k8sattributes], exporters: [debug]}}
"""


def alone(control):
    """Skips the test when another profiler reads CONTROL, a process that this agent does not sample."""
    if any(control.reads(0, time.monotonic())):
        pytest.skip("another profiler runs on this machine")


def test_off_means_not_one_read(tmp_path):
    operator, running = Node(tmp_path), []
    pods = {name: Pod(i, policy) for i, (name, policy) in enumerate(
        {"shown": ON, "hidden": OFF, "read": ON, "untouched": OFF}.items())}
    python = next(iter(python_stacks.interpreters().values()), sys.executable)
    work = [python, os.path.join(HERE, "python_work.py"), "by_sorted"]
    forged = [os.path.join(PROGRAMS, "python-forged"), "--watch"]
    try:
        operator.tell(policies={ON: (True, 97), OFF: (True, 97)}, pods=list(pods.values()), default=(False, 20))
        with agent.Agent(config=config(operator)) as a:
            profiling(a)
            operator.connected()
            for name, pod in pods.items():
                running.append(InPod(pod, *(work if name in ("shown", "hidden") else forged)))
            shown, hidden, read, untouched = running
            pids = [r.process.pid for r in running]
            control = InPod(None, *forged)  # under the default policy, which is disabled: no samples
            running.append(control)
            begin = time.monotonic()
            out = Output(a)
            wait_until("samples of all, and Python's frames where they are asked for", lambda: (
                (f := out.read()) and all(sum(f[pid].values()) > 100 for pid in pids) and
                any(kind == "cpython" for kind, _ in f[shown.process.pid]) and
                len(untouched.reads(begin, time.monotonic())) > 3 and control.reads(begin, time.monotonic())), 90)
            alone(control)
            assert any(read.reads(begin, time.monotonic())), "the test cannot tell that memory is read"
            assert set(untouched.reads(begin, time.monotonic())) == {0}
            for off in (hidden, untouched):
                assert not any(map(is_pythons, out.frames[off.process.pid]))
            assert any(kind == "cpython" and re.search("work", name) for kind, name in out.frames[shown.process.pid])
            attached = agent.metrics(f"http://127.0.0.1:{PORT}/metrics")['kiln_runtime_attach_total{result="ok"}']
            assert attached >= 2

            # Exchange the policies while the programs run.
            for name, pod in pods.items():
                pod.policy = ON if pod.policy == OFF else OFF
            operator.tell(pods=list(pods.values()))
            before = time.monotonic()
            wait_until("what was off is shown", lambda: any(untouched.reads(before, time.monotonic())) and any(
                kind == "cpython" for kind, _ in out.read()[hidden.process.pid]), 60)
            settled = time.monotonic() + 1  # the names of a window's last stacks are read at its end, after the change
            wait_until("it has looked a few times", lambda: len(read.reads(settled, time.monotonic())) > 3, 60)
            alone(control)
            assert set(read.reads(settled, time.monotonic())[1:]) == {0}
            assert a.stop() == 0, a.stderr()
    finally:
        for r in running:
            r.process.kill()
        for r in reversed(running):  # the first cgroup made the parent directories, so it is removed last
            r.end()
        operator.close()


JAVA = "class Work { static int work() { int i = 0; while (i < 9999) i++; return i; } " \
       "public static void main(String[] a) { for (int x = 0;; x += work()) if (x == 7) System.out.println(x); } }"


def scripts(directory):
    """{tracer: command} of the available languages; each program runs a function `work`."""
    found = {}
    root, _ = hotspot_stacks.root_of(hotspot_stacks.NEWEST)
    if root:
        (directory / "Work.java").write_text(JAVA)
        directory.chmod(0o755)
        # Without the compilers, so that work() keeps its frame.
        found["jvm"] = hotspot_stacks.in_root(root, str(directory), [
            hotspot_stacks.java(hotspot_stacks.NEWEST), "-Xint", "/w/Work.java"])
    for tracer, get, version, program, script in (
            ("ruby", ruby_stacks.root_of, ruby_stacks.VERSIONS[0], "ruby{}",
             "def work; i = 0; i += 1 while i < 9999; end; loop { work }"),
            ("php", php_stacks.root_of, php_stacks.VERSIONS[0], "php{}",
             "function work() { for ($i = 0; $i < 9999; $i++); } for (;;) work();"),
            ("perl", perl_stacks.interpreter, perl_stacks.VERSIONS[0], "perl",
             "sub work { my $i = 0; $i++ while $i < 9999 } work() while 1")):
        root, _ = get(version)
        if root:
            # With /dev: Perl opens /dev/null for a script in an argument.
            found[tracer] = hotspot_stacks.in_root(root, str(directory), [
                "/usr/bin/" + program.format(version), "-r" if tracer == "php" else "-e", script])
    return found


def test_each_tracer_is_switched_in_a_namespace(tmp_path):
    operator, running, found = Node(tmp_path), {}, scripts(tmp_path)
    if not found:
        pytest.skip("none of Java, Ruby, PHP and Perl can be had")
    pods = {tracer: Pod(i, ON) for i, tracer in enumerate(found)}
    try:
        operator.tell(policies={ON: (True, 97), OFF: (True, 97)}, pods=list(pods.values()), default=(False, 20))
        with agent.Agent(config=config(operator, "java|ruby|php|perl")) as a:
            profiling(a)
            operator.connected()
            for tracer, command in found.items():
                running[tracer] = InPod(pods[tracer], *command)
            out = Output(a)

            def shown(tracer):
                """(number of the function `work` in frames of the runtime, number of whole stacks) so far."""
                frames = out.read()[running[tracer].process.pid]
                return (sum(n for (kind, name), n in frames.items() if kind == tracer and re.search("work", name)),
                        sum(n for (_, name), n in frames.items() if name in WHOLE))

            for tracer in found:
                wait_until(f"frames of {tracer}", lambda t=tracer: shown(t)[0] > 5, 90)
            # What ProfilingNode shows: each tracer is available, and the versions that were attached to.
            wait_until("the versions in the report", lambda: {
                t.name for t in operator.reports[-1].tracers if t.state == t.LOADED and t.versions} >= set(found), 30)
            versions = {t.name: list(t.versions) for t in operator.reports[-1].tracers if t.name in found}
            assert all(re.fullmatch(r"[0-9.]+", v) for seen in versions.values() for v in seen), versions

            def switch(policy):
                for pod in pods.values():
                    pod.policy = policy
                operator.tell(pods=list(pods.values()))
                return time.monotonic()

            begin, last = switch(OFF), {tracer: {} for tracer in found}

            def is_off(tracer):
                """Whether samples go on, but none had frames of the runtime for longer than a window."""
                now, was = shown(tracer), last[tracer]
                if now[0] != was.get("shown"):
                    was.update(shown=now[0], all=now[1], at=time.monotonic())
                return now[1] > was["all"] + 20 and time.monotonic() > was["at"] + 2.5

            wait_until("no more frames of any", lambda: all([is_off(tracer) for tracer in found]), 60)
            again = switch(ON)
            for tracer in found:
                wait_until(f"frames of {tracer} again", lambda t=tracer: shown(t)[0] > last[t]["shown"] + 5, 60)
                print(f"{tracer}: the last frame {last[tracer]['at'] - begin:.1f} s after it was off, "
                      f"the first ones {time.monotonic() - again:.1f} s after it was on")
            assert a.stop() == 0, a.stderr()
    finally:
        for r in running.values():
            r.process.kill()
        for r in reversed(list(running.values())):
            r.end()
        operator.close()
