# SPDX-License-Identifier: Apache-2.0
"""What profiling Java costs: BPF time per Java frame compared with a native frame (depth.py); the agent's memory for 30,000
methods; and the throughput of a JVM profiled at 997 Hz and at 20 Hz in turn."""
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
import depth  # noqa: E402
import hotspot_stacks as stacks  # noqa: E402
from kiln import agent  # noqa: E402
from running import empty_program, running_agent  # noqa: E402

VERSION = os.environ.get("KILN_JAVA", "21")
METHODS, CLASSES = 300, 100


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
    """Runs BenchJava and waits until it is ready; yields (process, path of the file with its output)."""
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


def bench_frames(table, quick, root, directory, chain):
    @contextlib.contextmanager
    def run(calls, options=()):
        with program(root, directory, "chain", calls, options=options) as (process, _):
            yield process.pid

    kinds = {"Java": run, "Java, not inlined": lambda calls: run(calls, ("-XX:-Inline",))}
    depth.add_rows(table, quick, directory, chain, kinds)
    # Each method has its own entry in the rule cache: deep stacks show what the misses cost.
    depth.add_rows(table, quick, directory, chain, kinds, deep=METHODS - 10)


def own_memory(a):
    """Anonymous memory of the agent A (RssAnon), in MiB."""
    with open(f"/proc/{a.process.pid}/status", encoding="utf-8") as f:
        return int(re.search(r"RssAnon:\s+(\d+)", f.read())[1]) / 1024


def bench_methods(table, root, directory):
    # The debug exporter, because folded_file holds all stacks in memory until the agent ends.
    output = os.path.join(directory, "stacks.txt")
    with running_agent(97, f'debug: {{ignore_profiles_without_container_id: false, output: "{output}"}}') as a:
        time.sleep(6)
        before = own_memory(a)
        with program(root, directory, "methods", CLASSES) as (process, out):
            wait_for(process, out, "seen")
            time.sleep(15)  # until the windows with all these stacks are exported, and freed memory is given back
            after = own_memory(a)
        if a.stop(60):
            raise RuntimeError(f"agent: {a.stderr()[-300:]}")
        with open(output, encoding="utf-8") as f:
            seen = set(re.findall(r"kiln\.C\d+\.m\d+", f.read()))
    table.add(f"agent's memory (RssAnon) for {len(seen)} Java methods", after - before, "MiB", 12)


def bench_interrupts(table, quick):
    """What the interrupts of 997 Hz take from a CPU, with a BPF program that does nothing: no sampler can cost less."""
    command = [os.path.join(os.path.dirname(agent.binary()), "kiln-bench-interrupts"), "2" if quick else "10"]

    def lost():
        return float(subprocess.run(command, check=True, capture_output=True).stdout) * 100

    taken = []
    for _ in range(3 if quick else 9):
        before = lost()
        with empty_program("timers", 997):
            taken.append(lost() - before)
    table.add("997 empty interrupts a second take, of one CPU", statistics.median(taken), "%")


def bench_throughput(table, quick, root, directory):
    """What is compared is measured in turn, each second round in the reverse order: so other load of the machine affects all
    of it."""
    seconds, rounds = (8, 2) if quick else (58, 10)  # ten minutes at 997 Hz in all
    modes = {"997": lambda: running_agent(997), "20": lambda: running_agent(20), "timers": lambda: empty_program("timers", 997)}
    done = {mode: [] for mode in modes}
    with program(root, directory, "threads", 200, seconds=7200) as (process, out):
        time.sleep(10)  # until the JIT has compiled the program
        for i in range(rounds):
            for mode, start in list(modes.items())[::-1 if i % 2 else 1]:
                with start():
                    time.sleep(5)
                    with open(out, encoding="utf-8") as f:
                        n = len(f.read().split())
                    time.sleep(seconds)
                    with open(out, encoding="utf-8") as f:
                        values = list(map(int, f.read().split()[n:]))
                    done[mode].append(sum(values) / len(values))
        if process.poll() is not None:
            raise RuntimeError("the JVM ended")
    what = f"throughput of a JVM with 200 threads, {{}}, against the agent at 20 Hz, {rounds} each"
    for mode, name, goal in (("997", "the agent at 997 Hz", -99), ("timers", "997 Hz of empty timers", None)):
        pairs = [a / b for a, b in zip(done[mode], done["20"])]
        table.add(what.format(name), statistics.median(pairs) * 100, "%", goal)


def bench(table, quick, chain):
    root, why = stacks.root_of(VERSION)
    if not root or not chain:
        table.lack("Java", why or "kiln-bench-chain is not built")
        return
    with tempfile.TemporaryDirectory(prefix="kiln-bench-") as directory:
        compile_classes(root, directory)
        bench_frames(table, quick, root, directory, chain)
        bench_methods(table, root, directory)
        bench_interrupts(table, quick)
        bench_throughput(table, quick, root, directory)
