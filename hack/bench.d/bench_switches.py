# SPDX-License-Identifier: Apache-2.0
"""What off-CPU profiling costs programs that switch all the time. Measured in turn: without an agent, with an agent, with an
agent that profiles off-CPU at its default rate, and with a BPF program at the switch that does nothing."""
import contextlib
import json
import pathlib
import statistics
import subprocess
import time

from kiln import agent

from running import empty_program

WARM_UP = 2  # seconds, for the agent's start
ARGUMENTS = {"none": None, "agent": (), "off-CPU": ("--off-cpu",), "empty": None}


class Switches:
    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def look(self):
        self.process.stdin.write("\n")
        return [int(x) for x in self.process.stdout.readline().split()]

    def rate(self, seconds):
        """Handovers per second between the processes, over SECONDS."""
        before = self.look()
        time.sleep(seconds)
        after = self.look()
        return (after[0] - before[0]) * 1e9 / (after[1] - before[1])

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def bpf_time():
    """(nanoseconds, runs) of the BPF program at sched_switch."""
    ns = runs = 0
    for p in json.loads(subprocess.run(["bpftool", "prog", "show", "--json"], check=True, capture_output=True).stdout):
        if p.get("name") == "on_switch":
            ns, runs = ns + p.get("run_time_ns", 0), runs + p.get("run_cnt", 0)
    return ns, runs


def bpf_cost(seconds):
    """BPF nanoseconds per switch, over SECONDS. Turns the kernel's statistics on, which the agent does only now and then."""
    path = pathlib.Path("/proc/sys/kernel/bpf_stats_enabled")
    kept = path.read_text(encoding="utf-8")
    path.write_text("1", encoding="utf-8")
    try:
        before = bpf_time()
        time.sleep(seconds)
        after = bpf_time()
    finally:
        path.write_text(kept, encoding="utf-8")
    return (after[0] - before[0]) / max(after[1] - before[1], 1)


def rate_with(switches, arguments, seconds):
    """(handovers per second, BPF nanoseconds per switch) beside an agent with ARGUMENTS; None: without an agent."""
    if arguments is None:
        return switches.rate(seconds), None
    with agent.Agent("--folded-file", "/dev/null", *arguments) as a:
        while "profiling at" not in a.stderr():
            if a.process.poll() is not None:
                raise RuntimeError(f"the agent ended: {a.stderr()}")
            time.sleep(0.1)
        time.sleep(WARM_UP)
        rate, cost = switches.rate(seconds), bpf_cost(1)
        a.stop()
    return rate, cost


def bench(table, path, quick):
    seconds, rounds = (2, 3) if quick else (5, 9)
    switches = Switches(path)
    got = {kind: [] for kind in ARGUMENTS}
    cost = []
    try:
        for i in range(rounds):
            order = list(ARGUMENTS.items())
            i %= len(order)
            for kind, arguments in order[i:] + order[:i]:
                with empty_program("switches") if kind == "empty" else contextlib.nullcontext():
                    rate, ns = rate_with(switches, arguments, seconds)
                got[kind].append(rate)
                if kind == "off-CPU":
                    cost.append(ns)
    finally:
        switches.close()
    base = statistics.median(got["none"])
    table.add("switches a second, two processes on each CPU, no agent", base, "")
    table.add("  an agent without off-CPU takes", (1 - statistics.median(got["agent"]) / base) * 100, "%", 0.1)
    table.add("  one with off-CPU takes", (1 - statistics.median(got["off-CPU"]) / base) * 100, "%", 1.5)
    table.add("  an empty program at the switch takes", (1 - statistics.median(got["empty"]) / base) * 100, "%")
    table.add("  BPF time a switch (with the kernel's statistics on)", statistics.median(cost), "ns")
