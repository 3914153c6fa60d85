# SPDX-License-Identifier: Apache-2.0
"""What Java costs: the time for a frame beside a native one's, by the difference between deep and shallow stacks; memory for
30,000 methods; a JVM's own throughput at 997 Hz and at 20 Hz turn about."""
import contextlib
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tests", "integration", "runtimes"))
import hotspot_stacks as stacks  # noqa: E402
from kiln import agent  # noqa: E402

VERSION = os.environ.get("KILN_JAVA", "21")
METHODS, CLASSES = 300, 100
SHALLOW, DEEP = 30, 120
CONFIG = """
receivers:
  profiling: {samples_per_second: %(hz)d, reporter_interval: 5s}
exporters:
  %(name)s: {%(options)s}
extensions:
  health_check: {endpoint: "127.0.0.1:%(port)d"}
service:
  extensions: [health_check]
  pipelines:
    profiles: {receivers: [profiling], exporters: [%(name)s]}
"""


def write_chain(directory, number):
    with open(f"{directory}/C{number}.java", "w", encoding="utf-8") as f:
        f.write(f"package kiln;\nfinal class C{number} {{\n")
        for k in range(METHODS):
            following = f"m{k + 1}(x + {k})" if k + 1 < METHODS else "BenchJava.leaf(x)"
            f.write(f"    static long m{k}(long x) {{\n        long y = {following};\n        return y ^ {k};\n    }}\n")
        f.write("}\n")


def compile_classes(root, directory):
    os.chmod(directory, 0o755)
    for number in range(CLASSES):
        write_chain(directory, number)
    shutil.copy(os.path.join(HERE, "BenchJava.java"), directory)
    names = ["/w/" + name for name in sorted(os.listdir(directory)) if name.endswith(".java")]
    subprocess.run(stacks.in_root(root, directory, [
        stacks.java(VERSION), "-m", "jdk.compiler/com.sun.tools.javac.Main", "-g", "-nowarn", "-d", "/w", *names]), check=True)


@contextlib.contextmanager
def program(root, directory, *arguments, options=(), seconds=600):
    """Runs BenchJava until it is ready: (process, the file of what it says)."""
    command = [stacks.java(VERSION), *options, "-cp", "/w", "kiln.BenchJava", str(seconds), *map(str, arguments)]
    with tempfile.NamedTemporaryFile("w+", encoding="utf-8") as out:
        process = subprocess.Popen(stacks.in_root(root, directory, command), stdin=subprocess.DEVNULL, stdout=out)
        try:
            wait_for(process, out.name, "ready")
            yield process, out.name
        finally:
            process.kill()
            process.wait()


def wait_for(process, path, word, seconds=120):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with open(path, encoding="utf-8") as f:
            if word in f.read().split():
                return
        if process.poll() is not None:
            raise RuntimeError(f"the program ended: {process.returncode}")
        time.sleep(0.1)
    raise RuntimeError(f"the program did not say {word}")


@contextlib.contextmanager
def running_agent(directory, hz, pid=None, name="folded_file",
                  options='path: "%s"'):
    port, path = 13190 + os.getpid() % 500, os.path.join(directory, "stacks.txt")
    config = CONFIG % {"hz": hz, "name": name, "options": options % path, "port": port}
    with agent.Agent(*(("--pid", pid) if pid else ()), config=config) as a:
        a.url, a.stacks = f"http://127.0.0.1:{port}", path
        a.wait_ready(url=a.url + "/readyz")
        yield a


def cost(directory, pid, seconds):
    """(ns a sample, frames a sample)"""
    with running_agent(directory, 997, pid) as a:
        time.sleep(3)  # tables and names are there
        before = agent.metrics(a.url + "/metrics")
        time.sleep(seconds)
        after = agent.metrics(a.url + "/metrics")
        if a.stop(60):  # the file is written at the end
            raise RuntimeError(f"agent: {a.stderr()[-300:]}")
        samples = frames = 0
        with open(a.stacks, encoding="utf-8") as f:
            for line in f:
                stack, _, n = line.rstrip().rpartition(" ")
                samples += int(n)
                frames += int(n) * (stack.count(";") + 1)
    ns, n = (after[key] - before.get(key, 0) for key in ("kiln_bpf_run_nanoseconds_total", "kiln_samples_total"))
    return ns / max(n, 1), frames / max(samples, 1)


def bench_frames(table, quick, root, directory, chain):
    """The difference between the two depths is that of the frames alone."""
    seconds, rounds = (3, 1) if quick else (6, 3)
    kinds = {"Java": (), "Java, not inlined": ("-XX:-Inline",), "native": None}
    got = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind, options in kinds.items():
            two = []
            for depth in (SHALLOW, DEEP):
                if options is None:
                    process = subprocess.Popen([chain, "60", str(depth)], stdout=subprocess.DEVNULL)
                    try:
                        two.append(cost(directory, process.pid, seconds))
                    finally:
                        process.kill()
                        process.wait()
                else:
                    with program(root, directory, "chain", depth, options=options) as (process, _):
                        two.append(cost(directory, process.pid, seconds))
            got[kind].append((two[1][0] - two[0][0]) / (two[1][1] - two[0][1]))
    per = {kind: statistics.median(values) for kind, values in got.items()}
    for kind, ns in per.items():
        table.add(f"BPF time a frame, {kind}, 997 Hz", ns, "ns")
    table.add("  Java / native", per["Java"] / per["native"], "x", 1.5)
    table.add("  Java, not inlined / native", per["Java, not inlined"] / per["native"], "x", 1.5)


def own_memory(a):
    """MiB"""
    with open(f"/proc/{a.process.pid}/status", encoding="utf-8") as f:
        return int(re.search(r"RssAnon:\s+(\d+)", f.read())[1]) / 1024


# It keeps nothing, as folded_file does until the end.
DEBUG = {"name": "debug", "options": 'ignore_profiles_without_container_id: false, output: "%s"'}


def bench_methods(table, root, directory):
    with running_agent(directory, 97, **DEBUG) as a:
        time.sleep(6)
        before = own_memory(a)
        with program(root, directory, "methods", CLASSES) as (process, out):
            wait_for(process, out, "seen")
            time.sleep(6)
            after = own_memory(a)
        if a.stop(60):
            raise RuntimeError(f"agent: {a.stderr()[-300:]}")
        with open(a.stacks, encoding="utf-8") as f:
            seen = set(re.findall(r"kiln\.C\d+\.m\d+", f.read()))
    table.add(f"agent's memory (RssAnon) for {len(seen)} Java methods", after - before, "MiB", 12)


def bench_throughput(table, quick, root, directory):
    """Turn about, so that what the machine does meanwhile is in both."""
    seconds, rounds = (8, 1) if quick else (55, 5)
    done = {997: [], 20: []}
    with program(root, directory, "threads", 200, seconds=3600) as (process, out):
        time.sleep(10)  # compiled
        for _ in range(rounds):
            for hz, sums in done.items():
                with running_agent(directory, hz):
                    time.sleep(5)
                    with open(out, encoding="utf-8") as f:
                        n = len(f.read().split())
                    time.sleep(seconds)
                    with open(out, encoding="utf-8") as f:
                        values = list(map(int, f.read().split()[n:]))
                    sums.append(sum(values) / len(values))
        if process.poll() is not None:
            raise RuntimeError("the JVM ended")
    fast, slow = (statistics.median(sums) for sums in done.values())
    table.add(f"throughput of a JVM with 200 threads, 997 Hz against 20 Hz, {rounds} each", fast / slow * 100, "%", -99)


def bench(table, quick, chain):
    root, why = stacks.root_of(VERSION)
    if not root or not chain:
        table.lack("Java", why or "kiln-bench-chain is not built")
        return
    with tempfile.TemporaryDirectory(prefix="kiln-bench-") as directory:
        compile_classes(root, directory)
        bench_frames(table, quick, root, directory, chain)
        bench_methods(table, root, directory)
        bench_throughput(table, quick, root, directory)
