#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""4096 distinct stacks: each has the share of samples that the program measured for it. No two stacks are merged, none is
invented, none is lost. The agent starts before the program and stops after it."""
import math
import os
import re
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from kiln import agent, chains, workload  # noqa: E402

HZ = 997
PATHS = 4096


def path_of(frames):
    """The number of the path that a stack encodes, or None for a stack between two paths."""
    names = frames[:6]
    path = 0
    for level, name in zip(range(5, -1, -1), names):
        match = re.fullmatch(rf"f{level}_([0-3])", name)
        if not match:
            return None
        path |= int(match.group(1)) << 2 * level
    return path if len(names) == 6 else None


def chi_square(observed, expected):
    """(statistic, degrees of freedom). Paths are joined into cells that each expect at least five samples, in an order that is
    independent of the paths and of the measured times: a sample itself takes time, so on a fast machine, which needs about
    the same time for each path, the order of the times would be the order of the numbers of samples."""
    statistic, cells, o, e = 0.0, 0, 0.0, 0.0
    for path in sorted(range(PATHS), key=lambda path: path * 2654435761 % 2**32):
        o, e = o + observed[path], e + expected[path]
        if e >= 5:
            statistic, cells, o, e = statistic + (o - e) ** 2 / e, cells + 1, 0.0, 0.0
    return statistic + (o - e) ** 2 / max(e, 1), cells


def main():
    problems = []
    with agent.Agent("--stdout", "--samples-per-second", HZ, "--reporter-interval", "2s",
                     "--process-filter", "^wl-many$") as a:
        time.sleep(8)  # longer than the agent takes to attach, on a slow machine too
        with workload.Workload("many", 100000, seconds=30) as w:
            said = w.rest(timeout=600)
            pid, expect = w.pid, w.chains
        if a.process.poll() is not None:
            problems.append("the agent ended before the workload did: nothing can be said of shares")
        time.sleep(1)
        status = a.stop()
        if status:
            print(f"agent: exit {status}: {a.stderr().strip()[-800:]}")
            return 1
        samples = [s for s in a.samples() if s.pid == pid]
    spent = said[-1]["spent"]
    verdict = chains.check(samples, expect)
    problems += chains.shares(verdict, expect)
    observed, other = [0] * PATHS, 0
    for sample in samples:
        path = path_of(sample.user)
        if path is None:
            other += sample.value
        else:
            observed[path] += sample.value
    total = sum(observed)
    seconds = sum(spent) / 1e9
    expected = [total * ns / sum(spent) for ns in spent]
    statistic, cells = chi_square(observed, expected)
    unseen = [p for p in range(PATHS) if not observed[p] and expected[p] > 8]
    seen = sum(1 for n in observed if n)
    chances = [1 - math.exp(-e) for e in expected]
    least = sum(chances) - 4 * sum(c * (1 - c) for c in chances) ** 0.5
    print(f"{verdict.samples} samples of {seconds:.1f} s at {HZ} Hz, {verdict.complete:.2%} right, {other} between paths")
    print(f"{seen} of {PATHS} stacks seen, by chance alone {least:.0f} at least; chi square {statistic:.0f} for {cells} cells")
    for _, frames, why in verdict.wrong[:3]:
        print(f"    {why}\n      " + "\n      ".join(frames))
    if verdict.complete < 0.995:
        problems.append(f"{verdict.complete:.2%} right, want 99.5%")
    if not 0.95 * HZ * seconds <= verdict.samples <= 1.05 * HZ * seconds:
        problems.append(f"{verdict.samples} samples, want {HZ * seconds:.0f}")
    # Samples are equidistant in time, so cells vary less than random ones: more than six sigma is a real difference.
    if statistic > cells + 6 * (2 * cells) ** 0.5:
        problems.append("shares differ from the CPU time that the program measured")
    if unseen:
        problems.append(f"{len(unseen)} stacks expected more than 8 times were never seen: {unseen[:5]}")
    if seen < least:
        problems.append(f"{seen} stacks seen, want {least:.0f}: some were merged")
    for problem in problems:
        print(f"FAILED: {problem}")
    return 1 if problems else 0


sys.exit(main())
