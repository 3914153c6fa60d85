#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs workloads under the agent; every sample must have the chain that the program is written to have.
usage: test_stacks.py [--seconds N] [--hz N] [--json FILE] [ID...]   (exit 77: all skipped)"""
import argparse
import json
import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from kiln import agent, chains, workload  # noqa: E402
from table import ROWS  # noqa: E402

COMPLETE = 0.995
SKIPPED = 77


def run(row, seconds, hz):
    """Runs the workload of ROW under the agent: (Verdict, messages about problems)."""
    problems = []
    arguments = ["--stdout", "--samples-per-second", hz, "--duration", f"{seconds}s", "--reporter-interval", "2s"]
    with workload.Workload(row.name, *row.arguments, seconds=seconds + 40, where=row.where, symbols=row.symbols) as w:
        exe = os.path.basename(w.path)
        if row.tree:
            arguments += ["--process-filter", f"^{exe[:15]}$"]
        else:
            arguments += ["--pid", w.pid]
        meter = Meter(w.pid)
        with agent.Agent(*arguments, *row.agent) as a:
            status = a.wait(seconds + 60)
            low, high = meter.stop(seconds)
            if status:
                return chains.Verdict(), [f"agent: exit {status}: {a.stderr().strip()[-500:]}"]
            samples = a.samples()
        if not row.tree:
            strangers = {s.pid for s in samples} - {w.pid}
            if strangers:
                problems.append(f"--pid {w.pid}, but samples of {sorted(strangers)}")
        samples = [s for s in samples if row.tree or s.pid == w.pid]
        if not all(s.kernel_is_on_top() for s in samples):
            problems.append("kernel frames below user frames")
        verdict = chains.check(samples, w.chains)
        problems += chains.shares(verdict, w.chains)
    # On a busy machine a workload gets fewer samples, but a process has as many first samples, which may be wrong. So the
    # tolerance is a share of the samples that the workload gets with a CPU of its own.
    of_copies = sum(value for value, frames, _ in verdict.wrong if frames[-1:] == ["[incomplete: stack not readable]"])
    allowed = (1 - COMPLETE) * max(verdict.samples, seconds * hz) + min(row.first, of_copies)
    if verdict.wrong_samples > allowed:
        problems.append(f"{verdict.complete:.2%} of the samples are right, want {COMPLETE:.1%}")
    if verdict.samples < 30:
        problems.append(f"{verdict.samples} samples are too few to say anything")
    if not row.tree:
        # Samples are timed by the CPU clock, so their number follows from the CPU time. It is unknown in which part of the
        # run the agent sampled: the least and the most CPU time of any span of that length are the bounds. On a busy machine
        # a CPU clock timer counts less time for some threads than they ran (so does perf record, by up to a half), so only
        # an idle machine gives a close lower bound.
        quiet = low > 0.8 * seconds * min(row.cpus, os.cpu_count())
        at_least, at_most = (0.9 if quiet else 0.4) * low * hz, 1.1 * high * hz
        if not at_least - 4 * at_least ** 0.5 - 5 <= verdict.samples <= at_most + 4 * at_most ** 0.5 + 5:
            problems.append(f"{verdict.samples} samples, want {low * hz:.0f} to {high * hz:.0f}")
    return verdict, problems


class Meter(threading.Thread):
    """A thread that reads the CPU time of a process ten times a second."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.over, self.points = pid, threading.Event(), []
        self.start()

    def run(self):
        while True:
            try:
                self.points.append((time.monotonic(), cpu_seconds(self.pid)))
            except OSError:
                return
            if self.over.wait(0.1):
                return

    def stop(self, seconds):
        """(least, most) CPU time, in seconds, in any span of SECONDS."""
        self.over.set()
        self.join()
        spans = []
        for i, (at, used) in enumerate(self.points):
            end = next((p for p in self.points[i:] if p[0] >= at + seconds), None)
            if end is None:
                break
            spans.append((end[1] - used) * seconds / (end[0] - at))
        return (min(spans), max(spans)) if spans else (0.0, float("inf"))


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def show_wrong(verdict):
    for value, frames, why in sorted(verdict.wrong, key=lambda w: -w[0])[:1]:
        print(f"    {value} samples: {why}")
        shown = frames if len(frames) <= 24 else frames[:14] + [f"... {len(frames) - 22} more ..."] + frames[-8:]
        for frame in shown:
            print(f"      {frame}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--hz", type=int, default=193)
    parser.add_argument("--json")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("ids", nargs="*")
    options = parser.parse_args()
    rows = [r for r in ROWS if not options.ids or r.id in options.ids]
    unknown = set(options.ids) - {r.id for r in ROWS}
    if unknown:
        parser.error(f"no workload {', '.join(sorted(unknown))}")
    if options.list:
        print("\n".join(r.id for r in rows))
        return 0
    failed, ran, results = 0, 0, []
    print(f"{'workload':20} {'samples':>7} {'right':>8} {'wrong':>6}")
    for row in rows:
        lacking = workload.missing(row.name)
        if lacking:
            print(f"{row.id:20} skipped: no {lacking}")
            continue
        ran += 1
        verdict, problems = run(row, options.seconds, options.hz)
        print(f"{row.id:20} {verdict.samples:7} {verdict.complete:8.2%} {verdict.wrong_samples:6}", flush=True)
        show_wrong(verdict)
        for problem in problems:
            print(f"    FAILED: {problem}")
        failed += bool(problems)
        results.append({"workload": row.id, "samples": verdict.samples, "right": verdict.right, "problems": problems})
    if options.json:
        with open(options.json, "w", encoding="utf-8") as f:
            json.dump(results, f)
    total, right = sum(r["samples"] for r in results), sum(r["right"] for r in results)
    if len(rows) > 1:
        print(f"{'all':20} {total:7} {right / max(total, 1):8.2%}; {failed} of {ran} workloads failed")
    if not ran:
        return SKIPPED
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
