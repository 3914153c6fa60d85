# SPDX-License-Identifier: Apache-2.0
"""BPF time per frame: a program is sampled with deep and with shallow stacks, and the difference in BPF time is divided by
the difference in frames. So the cost of a sample apart from its frames is not in the figure."""
import contextlib
import os
import statistics
import subprocess
import time

from kiln import agent

from running import running_agent

SHALLOW, DEEP = 30, 120


def cost(directory, pid, seconds, more=""):
    """Samples the process PID for SECONDS at 997 Hz; returns (BPF nanoseconds per sample, frames per sample). MORE: settings
    of the receiver."""
    stacks = os.path.join(directory, "stacks.txt")
    with running_agent(997, f'folded_file: {{path: "{stacks}"}}', pid=pid, more=more) as a:
        time.sleep(3)  # until unwind tables and names are made
        before = agent.metrics(a.url + "/metrics")
        time.sleep(seconds)
        after = agent.metrics(a.url + "/metrics")
        if a.stop(60):  # the agent writes the file when it ends
            raise RuntimeError(f"agent: {a.stderr()[-300:]}")
        samples = frames = 0
        with open(stacks, encoding="utf-8") as f:
            for line in f:
                stack, _, n = line.rstrip().rpartition(" ")
                samples += int(n)
                frames += int(n) * (stack.count(";") + 1)
    ns, n = (after[key] - before.get(key, 0) for key in ("kiln_bpf_run_nanoseconds_total", "kiln_samples_total"))
    return ns / max(n, 1), frames / max(samples, 1)


@contextlib.contextmanager
def running(command, warm=0, **how):
    """Runs COMMAND and yields its pid after WARM seconds; HOW: more arguments of Popen()."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, **how)
    try:
        time.sleep(warm)
        if process.poll() is not None:
            raise RuntimeError(f"{command[0]} ended: {process.returncode}")
        yield process.pid
    finally:
        process.kill()
        process.wait()


def native(chain):
    return lambda depth: running([chain, "60", str(depth)])


def add_rows(table, quick, directory, chain, kinds, deep=DEEP):
    """Adds rows of the BPF time per frame for each of KINDS and for a native program. KINDS: {name: function(DEPTH)}, a
    context that runs a program DEPTH calls deep and yields its pid. The programs are measured in turn, so that other load
    of the machine affects all of them. DEEP: calls of the deep stacks."""
    seconds, rounds = (3, 1) if quick else (6, 3)
    kinds = {**kinds, "native": native(chain)}
    got = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind, start in kinds.items():
            two = []
            for depth in (SHALLOW, deep):
                with start(depth) as pid:
                    two.append(cost(directory, pid, seconds))
            if two[1][1] - two[0][1] < (deep - SHALLOW) * 0.8:
                raise RuntimeError(f"{kind}: {two[0][1]:.1f} and {two[1][1]:.1f} frames a sample at {SHALLOW} and {deep} calls")
            got[kind].append((two[1][0] - two[0][0]) / (two[1][1] - two[0][1]))
    per = {kind: statistics.median(values) for kind, values in got.items()}
    for kind, ns in per.items():
        table.add(f"BPF time a frame, {kind}, {deep} deep, 997 Hz", ns, "ns")
    for kind, ns in per.items():
        if kind != "native":
            table.add(f"  {kind} / native, {deep} deep", ns / per["native"], "x", 1.5)
