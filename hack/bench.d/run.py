#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what Kiln costs on this machine and prints one table: figure, measured value, goal (docs: budgets).

usage: hack/bench [--quick] [--only PART[,PART]] [--json FILE] [PART...]
PARTS: bpf verifier cpu rate memory tables stacks bytes runtimes nine java operator stream live probe switches labels

Nothing here is a test: a goal that is missed is shown, not failed. What cannot be measured (a program is not
built, the machine lacks something) is named, and the exit status is 1."""
import argparse
import contextlib
import glob
import gzip
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", ".."))
sys.path[:0] = [os.path.join(ROOT, "tests", "integration", "lib"), os.path.join(ROOT, "tests", "integration", "stacks")]
from kiln import agent, workload  # noqa: E402

import bench_java  # noqa: E402
import bench_labels  # noqa: E402
import bench_live  # noqa: E402
import bench_probe  # noqa: E402
import bench_memory as bench_memory_load  # noqa: E402
import bench_nine  # noqa: E402
import bench_operator  # noqa: E402
import bench_rate as bench_rate_load  # noqa: E402
import bench_runtimes  # noqa: E402
import bench_stream  # noqa: E402
import bench_switches  # noqa: E402
from running import running_agent  # noqa: E402

CPUS = os.cpu_count()


class Table:
    def __init__(self):
        self.rows, self.missing = [], []

    def add(self, what, value, unit, goal=None):
        """GOAL: the greatest VALUE that meets the goal; negative: -GOAL is the least."""
        met = None if goal is None else (value <= goal if goal >= 0 else value >= -goal)
        self.rows.append({"what": what, "value": value, "unit": unit, "goal": goal, "met": met})
        bound = "" if goal is None else f"{'<=' if goal >= 0 else '>='} {abs(goal):g} {unit}"
        text = f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
        print(f"| {what:62} | {text + ' ' + unit:>16} | {bound:>16} | {'' if met is None else 'yes' if met else 'NO':3} |", flush=True)

    def lack(self, what, why):
        self.missing.append(what)
        print(f"| {what:62} | {'not measured':>16} | {why}", flush=True)

    def head(self):
        print(f"| {'what':62} | {'measured':>16} | {'goal':>16} | met |\n|{'-' * 64}|{'-' * 17}:|{'-' * 17}:|-----|", flush=True)


def tool(name):
    found = [p for preset in ("release", "dev") for p in glob.glob(f"{ROOT}/build/{preset}/**/{name}", recursive=True)
             if os.access(p, os.X_OK) and os.path.isfile(p)]
    return found[0] if found else None


@contextlib.contextmanager
def bpf_stats():
    path = "/proc/sys/kernel/bpf_stats_enabled"
    with open(path, encoding="utf-8") as f:
        before = f.read()
    with open(path, "w", encoding="utf-8") as f:
        f.write("1")
    try:
        yield
    finally:
        with open(path, "w", encoding="utf-8") as f:
            f.write(before)


def bench_bpf(table, quick):
    """BPF time per sample of one process. Every sample hits it: the helper opens its perf events for that pid only."""
    helper = tool("kiln-bench-bpf")
    chain = tool("kiln-bench-chain")
    goals = {(30, 4999, "spin"): 1000, (30, 99, "spin"): 3000, (30, 99, "thrash"): 15000}
    seconds = 4 if quick else 15
    rows = [(frames, hz, "spin") for frames in (10, 30, 100) for hz in (99, 4999)] + [(30, 99, "thrash")]
    for frames, hz, kind in rows:
        what = f"BPF time a sample, {frames} frames, {hz} Hz{', caches thrashed' if kind == 'thrash' else ''}, target hits only"
        if not helper or not chain:
            table.lack(what, "kiln-bench-bpf or kiln-bench-chain is not built")
            continue
        # The target calls a chain of distinct functions over and over, on a CPU of its own.
        target = subprocess.Popen([chain, str(seconds + 10), str(frames), kind], stdout=subprocess.DEVNULL)
        try:
            with bpf_stats():
                done = subprocess.run([helper, "--hz", str(hz), "--pid", str(target.pid), "--seconds", str(seconds),
                                       "--cpu", str(CPUS - 1)], capture_output=True, text=True, check=False)
        finally:
            target.kill()
            target.wait()
        try:
            said = json.loads(done.stdout)
            table.add(what, float(said["avg_ns"]), "ns", goals.get((frames, hz, kind)))
        except (ValueError, KeyError, TypeError):
            table.lack(what, f"kiln-bench-bpf: exit {done.returncode}: {done.stderr.strip()[-100:]}")


BUSY = [("qsort", (60, 6)), ("nest", (31,)), ("go", ()), ("cxx", ("throw",)), ("kernel", ("urandom",)), ("rust-v0", ())]


def bench_verifier(table, _quick):
    """How much of the verifier's limits each BPF program uses on this kernel; hack/vm prints the same for other kernels."""
    done = subprocess.run([tool("test_bpf_verifier")], stdout=subprocess.PIPE, text=True, check=False)
    for line in done.stdout.splitlines():
        got = json.loads(line)
        for what, limit in (("frames", 8), ("stack", 512), ("tail_stack", 256), ("instructions", 1000000)):
            table.add(f"verifier: {got['program']}: {what} of {limit}", got[what], "", limit * 3 // 4)
    if done.returncode:
        table.lack("verifier", "a program takes more than 75 % of a limit, or was not loaded")


@contextlib.contextmanager
def busy_machine(seconds):
    with contextlib.ExitStack() as stack:
        for name, arguments in BUSY:
            if not workload.missing(name):
                stack.enter_context(workload.Workload(name, *arguments, seconds=seconds))
        yield


def bench_cpu(table, quick):
    took = 10 if quick else 40
    with busy_machine(600):
        for hz in (20, 97):
            with bpf_stats(), running_agent(hz) as a:
                time.sleep(10)  # the first windows, in which unwind tables and symbols are made
                cpu, at, before = a.cpu_seconds(), time.monotonic(), agent.metrics(a.url + "/metrics")
                time.sleep(took)
                share = (a.cpu_seconds() - cpu) / ((time.monotonic() - at) * CPUS)
                after = agent.metrics(a.url + "/metrics")
                span = time.monotonic() - at
                table.add(f"agent's CPU share of a busy machine at {hz} Hz, user space", share * 100, "%", 0.3 if hz == 20 else None)
                ns = after.get("kiln_bpf_run_nanoseconds_total", 0) - before.get("kiln_bpf_run_nanoseconds_total", 0)
                runs = after.get("kiln_bpf_runs_total", 0) - before.get("kiln_bpf_runs_total", 0)
                if ns and runs:
                    table.add(f"  the kernel side's, at {hz} Hz", ns / 1e9 / span / CPUS * 100, "%")
                    table.add(f"  both together, at {hz} Hz", share * 100 + ns / 1e9 / span / CPUS * 100, "%", 0.3 if hz == 20 else None)
                    table.add(f"  BPF time a run, mixed load, at {hz} Hz", ns / runs, "ns")
                else:
                    table.lack(f"  the kernel side's, at {hz} Hz", "no kiln_bpf_run_nanoseconds_total")
                ends = {k.split('"')[1]: after[k] - before.get(k, 0) for k in after if k.startswith("kiln_unwind_end_total{")}
                walks = sum(n for reason, n in ends.items() if reason != "none")
                if walks:
                    table.add(f"  complete user stacks, mixed load, at {hz} Hz", ends.get("root", 0) / walks * 100, "%", -99.5)


def bench_rate(table, quick):
    bench_rate_load.bench(table, quick, running_agent, bpf_stats, tool("libkiln-bench-many-cpus.so"))


def bench_runtimes_load(table, quick):
    bench_runtimes.bench(table, quick, tool("kiln-bench-chain"))


def bench_java_load(table, quick):
    bench_java.bench(table, quick, tool("kiln-bench-chain"))


def bench_memory(table, quick):
    bench_memory_load.bench(table, quick, running_agent, tool("kiln-bench-crowd"))


def bench_nine_runtimes(table, quick):
    bench_nine.bench(table, quick, running_agent, bpf_stats, CPUS)


def bench_tables(table, quick):
    helper = tool("kiln_bench_tables")
    files = [os.path.realpath(p) for p in ("/lib/x86_64-linux-gnu/libc.so.6", shutil.which("node") or "",
             *glob.glob("/usr/lib/x86_64-linux-gnu/libLLVM-*.so.1"), *glob.glob("/usr/lib/jvm/*/lib/server/libjvm.so")[:1],
             *glob.glob("/usr/lib/x86_64-linux-gnu/libpython3*.so.1.0")[:1]) if p and os.path.exists(p)]
    if not helper:
        table.lack("unwind tables", "kiln_bench_tables is not built")
        return
    done = subprocess.run([helper, *files], capture_output=True, text=True, check=False)
    print("\n" + done.stdout.rstrip() + "\n" + done.stderr)
    if done.returncode:
        table.lack("unwind tables", f"kiln_bench_tables: exit {done.returncode}")


def bench_stacks(table, quick):
    with tempfile.NamedTemporaryFile(prefix="kiln-bench-") as f:
        ids = ["qsort", "cxx-calls", "go", "threads", "urandom", "signal-return", "dlopen"]
        subprocess.run([sys.executable, f"{ROOT}/tests/integration/stacks/test_stacks.py", "--seconds", "4" if quick else "10",
                        "--json", f.name, *(ids if quick else [])], stdout=subprocess.DEVNULL, check=False)
        text = f.read()
    if not text:
        table.lack("complete stacks", "test_stacks.py failed")
        return
    results = [r for r in json.loads(text) if r["samples"]]
    samples, right = sum(r["samples"] for r in results), sum(r["right"] for r in results)
    table.add(f"complete and right stacks, {len(results)} workloads, {samples} samples", right / max(samples, 1) * 100, "%", -99.5)


class Sink(http.server.BaseHTTPRequestHandler):
    received = []

    def do_POST(self):
        size = int(self.headers.get("Content-Length") or 0)
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            body = b""
            while True:
                n = int(self.rfile.readline().split(b";")[0], 16)
                body += self.rfile.read(n)
                self.rfile.readline()
                if not n:
                    break
        else:
            body = self.rfile.read(size)
        plain = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
        Sink.received.append((len(body), len(plain)))
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def bench_bytes(table, quick):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Sink)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    exporter = f'otlp_http: {{endpoint: "http://127.0.0.1:{server.server_port}", compression: gzip}}'
    with busy_machine(300):
        for hz in (20, 97):
            Sink.received.clear()
            with running_agent(hz, exporter) as a:
                time.sleep(12 if quick else 30)
                samples = agent.metrics(a.url + "/metrics").get('kiln_export_samples_total{result="sent"}', 0)
                sent = list(Sink.received)
            if not sent or not samples:
                table.lack(f"bytes exported a sample at {hz} Hz", f"{len(sent)} requests, {samples:.0f} samples sent")
                continue
            table.add(f"bytes exported a sample, OTLP gzip, 5 s windows, {hz} Hz", sum(s for s, _ in sent) / samples, "B")
            table.add("  before compression", sum(p for _, p in sent) / samples, "B")
    server.shutdown()


def bench_switches_load(table, quick):
    path = tool("kiln-bench-switches")
    if path:
        bench_switches.bench(table, path, quick)
    else:
        table.lack("switches", "kiln-bench-switches is not built")


PARTS = {"bpf": bench_bpf, "verifier": bench_verifier, "cpu": bench_cpu, "rate": bench_rate, "memory": bench_memory,
         "tables": bench_tables, "stacks": bench_stacks,
         "bytes": bench_bytes, "runtimes": bench_runtimes_load, "operator": bench_operator.bench, "stream": bench_stream.bench,
         "nine": bench_nine_runtimes, "java": bench_java_load, "live": bench_live.bench, "probe": bench_probe.bench,
         "switches": bench_switches_load, "labels": bench_labels.bench}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only")
    parser.add_argument("--json")
    parser.add_argument("part", nargs="*")
    options = parser.parse_args()
    parts = (options.only.split(",") if options.only else []) + options.part or list(PARTS)
    if set(parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(set(parts) - set(PARTS)))}")
    table = Table()
    program = bench_operator.binary() if set(parts) <= {"operator", "stream"} else agent.binary()
    print(f"{os.uname().release}, {CPUS} CPUs, {program}\n")
    table.head()
    for part in parts:
        try:
            PARTS[part](table, options.quick)
        except (OSError, RuntimeError, subprocess.SubprocessError) as e:
            table.lack(part, str(e))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as f:
            json.dump(table.rows, f, indent=1)
    missed = [r["what"].strip() for r in table.rows if r["met"] is False]
    print(f"\n{sum(1 for r in table.rows if r['met'])} goals met, {len(missed)} missed, {len(table.missing)} not measured")
    for what in missed:
        print(f"missed: {what}")
    return 1 if table.missing else 0


sys.exit(main())
