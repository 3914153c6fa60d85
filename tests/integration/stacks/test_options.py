#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Options of the agent: selecting processes, ending a run, and its errors for missing capabilities and bad usage."""
import gzip
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from kiln import agent, workload  # noqa: E402

CAPABILITIES = ("bpf", "perfmon", "sys_ptrace", "syslog", "dac_read_search", "checkpoint_restore")


def run(*arguments, prefix=(), timeout=60, env=None):
    return subprocess.run([*prefix, agent.binary(), *map(str, arguments)], stdin=subprocess.DEVNULL, timeout=timeout,
                          capture_output=True, text=True, check=False, env={**os.environ, **(env or {})})


class Selection(unittest.TestCase):
    def both(self, *arguments):
        """Runs two workloads, A and B: ({pid: samples}, pid of A, pid of B). "A", "B" in ARGUMENTS stand for the pids."""
        with workload.Workload("nest", 11, seconds=60) as a, workload.Workload("plt-now", seconds=60) as b:
            args = [{"A": a.pid, "B": b.pid}.get(x, x) for x in arguments]
            with agent.Agent("--stdout", "--samples-per-second", 97, "--duration", "4s", *args) as run_:
                self.assertEqual(run_.wait(), 0, run_.stderr())
                counts = {}
                for s in run_.samples():
                    counts[s.pid] = counts.get(s.pid, 0) + s.value
            return counts, a.pid, b.pid

    def test_pid_selects_one(self):
        counts, a, b = self.both("--pid", "A")
        self.assertEqual(set(counts), {a})
        self.assertGreater(counts[a], 50)

    def test_pid_twice_selects_both(self):
        counts, a, b = self.both("--pid", "A", "--pid", "B")
        self.assertEqual(set(counts), {a, b})

    def test_filter_selects_by_name(self):
        counts, a, b = self.both("--process-filter", "^wl-plt")
        self.assertEqual(set(counts), {b})

    def test_without_selection_everything_is_seen(self):
        counts, a, b = self.both()
        self.assertGreater(counts.get(a, 0), 50)
        self.assertGreater(counts.get(b, 0), 50)

    def test_one_dash_is_as_good(self):
        counts, a, b = self.both("-pid", "A")
        self.assertEqual(set(counts), {a})


class End(unittest.TestCase):
    def test_duration_ends_with_0_in_time(self):
        start = time.monotonic()
        done = run("--stdout", "--duration", "2s")
        took = time.monotonic() - start
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreaterEqual(took, 2)
        self.assertLess(took, 30)

    def test_sigterm_flushes_and_ends_with_0(self):
        with workload.Workload("nest", 11, seconds=60) as w:
            with agent.Agent("--stdout", "--samples-per-second", 97, "--reporter-interval", "60s", "--pid", w.pid) as a:
                time.sleep(6)
                self.assertEqual(a.stop(), 0, a.stderr())
                self.assertGreater(sum(s.value for s in a.samples()), 50)

    def test_a_process_that_ends_meanwhile_does_no_harm(self):
        with workload.Workload("nest", 11, seconds=3) as w:
            with agent.Agent("--stdout", "--samples-per-second", 97, "--pid", w.pid, "--duration", "6s") as a:
                self.assertEqual(a.wait(), 0, a.stderr())

    def test_files_hold_what_was_sampled(self):
        with tempfile.TemporaryDirectory(prefix="kiln-test-") as d, workload.Workload("nest", 11, seconds=60) as w:
            config = f"""
receivers:
  profiling:
    samples_per_second: 97
exporters:
  pprof_file: {{path: {d}/x.pb.gz}}
  folded_file: {{path: {d}/x.folded}}
  customprofilesexporter: {{ignore_profiles_without_container_id: false, export_resource_attributes: true, export_profile_attributes: true, export_sample_attributes: true, export_stack_frames: true, export_stack_frame_types: [native, kernel, go]}}
service:
  pipelines:
    profiles:
      receivers: [profiling]
      exporters: [pprof_file, folded_file, customprofilesexporter]
"""
            with agent.Agent("--pid", w.pid, "--duration", "4s", config=config) as a:
                self.assertEqual(a.wait(), 0, a.stderr())
                want = sum(s.value for s in a.samples())
            with open(f"{d}/x.folded", encoding="utf-8") as f:
                lines = [line.rsplit(" ", 1) for line in f.read().splitlines()]
            self.assertGreater(want, 50)
            self.assertEqual(sum(int(n) for _, n in lines), want)
            self.assertTrue(any(re.search(r"main;nest_odd;nest_even;nest_odd;.*nest_odd;nest_leaf$", s) for s, _ in lines))
            with gzip.open(f"{d}/x.pb.gz") as f:
                self.assertIn(b"nest_leaf", f.read())


class Refusal(unittest.TestCase):
    def capped(self, keep):
        sets = ",".join(["-all"] + [f"+{c}" for c in keep])
        return ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", f"--bounding-set={sets}",
                f"--inh-caps={sets}", f"--ambient-caps={sets}")

    def setUp(self):
        # Users other than root may not be able to read the build tree.
        self.dir = tempfile.TemporaryDirectory(prefix="kiln-test-")
        os.chmod(self.dir.name, 0o755)
        self.binary = os.path.join(self.dir.name, "kiln-agent")
        subprocess.run(["cp", agent.binary(), self.binary], check=True)
        self.before = os.environ.get("KILN_AGENT")
        os.environ["KILN_AGENT"] = self.binary

    def tearDown(self):
        if self.before is None:
            del os.environ["KILN_AGENT"]
        else:
            os.environ["KILN_AGENT"] = self.before
        self.dir.cleanup()

    def test_without_root_it_names_the_capability(self):
        done = run("--stdout", "--duration", "1s", prefix=self.capped(()))
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertRegex(done.stderr, r"CAP_(BPF|PERFMON)")

    def test_each_needed_capability_is_named(self):
        for lacking in ("bpf", "perfmon"):
            done = run("--stdout", "--duration", "1s", prefix=self.capped([c for c in CAPABILITIES if c != lacking]))
            self.assertEqual(done.returncode, 3, f"without {lacking}: {done.stderr}")
            self.assertIn(f"CAP_{lacking.upper()}", done.stderr)

    def test_check_says_the_same(self):
        done = run("--check", prefix=self.capped(()))
        self.assertEqual(done.returncode, 3, done.stderr)

    def test_the_recommended_set_is_enough(self):
        with workload.Workload("nest", 11, seconds=60) as w:
            with agent.Agent("--stdout", "--samples-per-second", 97, "--duration", "4s", "--pid", w.pid,
                             prefix=self.capped(CAPABILITIES)) as a:
                self.assertEqual(a.wait(), 0, a.stderr())
                stacks = [s.user for s in a.samples() if s.pid == w.pid]
        self.assertTrue(stacks)
        self.assertTrue(any(s and s[0] == "nest_leaf" and s[-1] == "_start" for s in stacks), stacks[:1])


class BadUsage(unittest.TestCase):
    def test_each_is_one_line_and_exit_2(self):
        for arguments, word in ((["--no-such-option"], "no-such-option"), (["--samples-per-second", "0"], "1..1000"),
                                (["--samples-per-second", "1001"], "1..1000"), (["--duration", "soon"], "soon"),
                                (["--pid", "x"], "x"), (["--process-filter", "("], "("),
                                (["--config", "/no/such/file"], "/no/such/file")):
            done = run(*arguments)
            lines = done.stderr.strip().splitlines()
            self.assertEqual(done.returncode, 2, f"{arguments}: {done.stderr}")
            self.assertEqual(len(lines), 1, f"{arguments}: {done.stderr}")
            self.assertIn(word, lines[0])


if __name__ == "__main__":
    unittest.main(verbosity=2)
