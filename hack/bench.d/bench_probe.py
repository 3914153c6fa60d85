# SPDX-License-Identifier: Apache-2.0
"""What a probe costs per call of the probed function: the time of the probe's BPF program, as the kernel counts it, and
the caller's CPU time per call. At two rates: one at which one hit in thousands is sampled, and one at which each is."""
import json
import pathlib
import subprocess
import tempfile
import time

from kiln import agent

SOURCE = pathlib.Path(__file__).resolve().parents[2] / "tests/integration/agent/probed.c"
PROGRAMS = ("on_hit", "begin", "finish")


class Probed:
    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.process.stdout.readline()

    def call(self, n):
        """Lets the program call its functions N times; returns the CPU time for it, in seconds."""
        before = self._used()
        self.process.stdin.write(f"call {n // 4}\n")
        self.process.stdout.readline()
        return self._used() - before

    def _used(self):
        text = pathlib.Path(f"/proc/{self.process.pid}/schedstat").read_text(encoding="utf-8")
        return int(text.split()[0]) / 1e9

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def bpf_time():
    """{name: (nanoseconds, runs)} of the BPF programs of probes."""
    out = {}
    for p in json.loads(subprocess.run(["bpftool", "prog", "show", "--json"], check=True, capture_output=True).stdout):
        if p.get("name") in PROGRAMS and p["type"] == "kprobe":
            ns, runs = out.get(p["name"], (0, 0))
            out[p["name"]] = ns + p.get("run_time_ns", 0), runs + p.get("run_cnt", 0)
    return out


def bench(table, quick):
    calls = 100_000 if quick else 400_000
    with tempfile.TemporaryDirectory(prefix="kiln-bench-") as d:
        program = f"{d}/probed"
        subprocess.run(["cc", "-O1", "-o", program, SOURCE], check=True)
        probed = Probed(program)
        try:
            table.add("a call without a probe, CPU time", probed.call(calls) / calls * 1e9, "ns")
            for rate in (100, 10000):
                with agent.Agent("--folded-file", f"{d}/x.folded", "--probe", f"uprobe:{program}:leaf,rate={rate}") as a:
                    while "profiling at" not in a.stderr():
                        time.sleep(0.1)
                    for _ in range(3):
                        probed.call(40)
                        time.sleep(1)
                    before = bpf_time()
                    seconds = probed.call(calls)
                    after = bpf_time()
                    a.stop()
                hit = [x - y for x, y in zip(after["on_hit"], before["on_hit"])]
                # After a tail call, the kernel charges the time to the program that it called first.
                table.add(f"a uprobe's hit at rate {rate}, BPF, samples included", hit[0] / max(hit[1], 1), "ns")
                table.add("  the call, CPU time", seconds / calls * 1e9, "ns")
        finally:
            probed.close()
