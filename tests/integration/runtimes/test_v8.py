#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Node.js of several versions side by side under one agent: each sample must have its program's call chain,
with names, files and lines. usage: test_v8.py [chains|toggle|unknown]   (exit 77: no Node.js)"""
import collections
import glob
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))
from kiln import agent, textdump  # noqa: E402
import v8_stacks  # noqa: E402

SECONDS = 10
ENOUGH = 100  # samples of each program
WHOLE = 0.99  # smallest share of right samples among those in chains
SHORT = 0.08  # largest share of them on the way to a leaf or back, with right callers
LEAF = 0.99  # smallest share of whole stacks whose leaf is at a marked line
EACH = 0.2  # smallest share of samples at each of two equally long places where one function is inlined
BEFORE = textdump.before_attaching("v8")
NOT_READ = "cut: [v8: not read yet]"
SAMPLE = re.compile(r"  Values: \[(\d+)")
PID = re.compile(r"  process\.pid: (\d+)")
FRAME = re.compile(r"Instrumentation: (\S+), Function: (.*?)(?:, File: (.*), Line: (\d+), Column: \d+)?$")
CONFIG = """
receivers:
  profiling: {{samples_per_second: 97, reporter_interval: 2s{more}}}
extensions:
  health_check: {{endpoint: "127.0.0.1:{port}"}}
exporters:
  debug: {{export_function_file: true, ignore_profiles_without_container_id: false}}
service:
  extensions: [health_check]
  pipelines:
    profiles: {{receivers: [profiling], exporters: [debug]}}
"""


def nodes():
    """{major version: path} of the Node.js programs that hack/lib/install.sh has fetched, and of the system's."""
    cache = os.environ.get("KILN_CACHE") or os.path.expanduser("~/.cache/kiln")
    programs = glob.glob(os.path.join(cache, "node", "node_modules", "n*", "bin", "node"))
    programs += [p for p in (shutil.which("node"),) if p]
    out = {}
    for program in programs:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30, check=False).stdout
        match = re.match(r"v(\d+)\.", said)
        if match:
            out.setdefault(int(match.group(1)), program)
    return dict(sorted(out.items()))


class Program:
    def __init__(self, node, *arguments, seconds=600):
        flags = [a for a in arguments if a.startswith("--")]
        arguments = [a for a in arguments if a not in flags]
        self.process = subprocess.Popen([node, *flags, os.path.join(HERE, "v8_work.js"), str(seconds), *arguments],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                                        preexec_fn=lambda: os.nice(10))  # a lower priority than the agent's
        self.said = json.loads(self.process.stdout.readline())
        self.pid = self.said["pid"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def samples(text):
    """(pid, value, frames) of each sample in TEXT; frames in the form for v8_stacks.judge()."""
    pid, value, frames = 0, 0, []
    for line in text.splitlines():
        if match := FRAME.match(line):
            frames.append((match.group(1), match.group(2), match.group(3), int(match.group(4) or 0)))
            continue
        if frames:
            yield pid, value, frames
            frames = []
        if match := SAMPLE.match(line):
            value = int(match.group(1))
        elif match := PID.match(line):
            pid = int(match.group(1))
    if frames:
        yield pid, value, frames


def text_of(programs, more="", of="v8js"):
    """The agent's output of SECONDS, beginning when all PROGRAMS have had complete stacks with frames of type OF."""
    port = 13900 + os.getpid() % 90
    with agent.Agent(config=CONFIG.format(port=port, more=more)) as a:
        a.wait_ready(60, f"http://127.0.0.1:{port}/readyz")
        missing, deadline = {p.pid for p in programs}, time.monotonic() + 90
        while missing and time.monotonic() < deadline:
            time.sleep(1)
            for pid, _, frames in samples(a.stdout()):
                if any(kind == of for kind, *_ in frames) and not any(kind == "abort-marker" for kind, *_ in frames):
                    missing.discard(pid)
        time.sleep(4)  # skip the windows that began before
        before, begin, got = len(a.stdout()), time.monotonic(), collections.Counter()
        # On a busy machine it takes longer until there are enough samples.
        while time.monotonic() < begin + SECONDS or time.monotonic() < begin + 6 * SECONDS and any(
                got[p.pid] < ENOUGH for p in programs):
            time.sleep(1)
            got = collections.Counter()
            for pid, value, _ in samples(a.stdout()[before:]):
                got[pid] += value
        if a.stop(60):
            raise RuntimeError(f"agent: {a.stderr()[-500:]}")
        return a.stdout()[before:]


def chains():
    """Tests the oldest and the newest version (with KILN_MATRIX=1 every one) at the same time; with KILN_LONG=1 one after
    another."""
    found = nodes()
    if os.environ.get("KILN_MATRIX") != "1":
        found = {major: found[major] for major in (min(found), max(found))}
    commands = {f"node {major}": (node,) for major, node in found.items()}
    commands[f"node {max(found)} worker"] = (found[max(found)], "worker")
    # --no-turbofan, since Turbofan's code would soon replace Maglev's.
    commands[f"node {max(found)} maglev"] = (found[max(found)], "--no-turbofan")
    groups = [[name] for name in commands] if os.environ.get("KILN_LONG") == "1" else [list(commands)]
    return sum((chains_of({name: commands[name] for name in group}) for group in groups), [])


def chains_of(commands):
    known, problems = v8_stacks.chains(), []
    runs = {name: Program(*command) for name, command in commands.items()}
    try:
        text = text_of(runs.values())
    finally:
        for run in runs.values():
            run.__exit__()
    verdicts = {name: collections.Counter() for name in runs}
    leaves = collections.Counter()  # {name: whole stacks whose leaf is at a marked line}
    places = {name: collections.Counter() for name in runs}  # lines of the call of the function that is inlined twice
    tops = {name: collections.Counter() for name in runs}  # innermost frames of the samples on the way
    names = {run.pid: name for name, run in runs.items()}
    for pid, value, frames in samples(text):
        if pid in names:
            name = names[pid]
            verdict = v8_stacks.judge(frames, known)
            verdicts[name][verdict] += value
            if verdict == "short":
                tops[name][" < ".join(frame for _, frame, *_ in frames[:3])] += value
            if verdict == "whole":
                leaves[name] += value * v8_stacks.leaf_is_exact(frames, known)
                places[name].update({v8_stacks.caller_line(frames, "spin"): value})
    for name, verdict in verdicts.items():
        # Samples from before the agent knew the latest mappings of the process.
        unread = verdict.pop(NOT_READ, 0)
        inside = sum(verdict.values()) - verdict["other"]
        right = verdict["whole"] + verdict["short"]
        each = [places[name][line] for line in known["loops"][1][2]]
        print(f"{name:16} {inside:5} samples in chains: {right / max(inside, 1):.2%} right, "
              f"{verdict['short']} short, {verdict['other']} elsewhere, {unread} not read yet; leaf at its line: "
              f"{leaves[name] / max(verdict['whole'], 1):.1%}; inlined twice: {each}", flush=True)
        for top, n in tops[name].most_common(5):
            print(f"    {n} on the way: {top}")
        for why, n in verdict.most_common():
            if why not in ("whole", "short", "other"):
                print(f"    {n}: {why}")
        if inside < 50:
            problems.append(f"{name}: {inside} samples are too few to say anything")
        elif inside - right > max((1 - WHOLE) * inside, 1):
            problems.append(f"{name}: {right / inside:.2%} of the samples are right, want {WHOLE:.0%}")
        elif verdict["short"] > SHORT * inside:
            problems.append(f"{name}: {verdict['short']} of {inside} samples are not at their leaf")
        elif leaves[name] < LEAF * verdict["whole"] - 2:
            problems.append(f"{name}: of {verdict['whole']} leaves {leaves[name]} are at their lines")
        elif min(each) < EACH * (sum(each) - 20):
            problems.append(f"{name}: of two calls that take as long there are {each} samples")
    return problems


def toggle():
    """With the tracer off there are only native frames, and no marker of missing V8 frames."""
    with Program(next(iter(nodes().values()))) as run:
        text = text_of([run], more=', tracers: "native,kernel"', of="native")
    frames = [frame for pid, _, stack in samples(text) if pid == run.pid for frame in stack]
    said = {name for kind, name, *_ in frames if kind == "v8js" or kind == "abort-marker" and "v8" in name}
    if not frames or said:
        return [f"tracer off: {len(frames)} frames, and {sorted(said)}"]
    return []


def of_unknown_version(node, copy):
    """Makes COPY from NODE, with a symbol changed so that its V8 reports the build number as its major version."""
    said = subprocess.check_output(["nm", "-D", "--defined-only", node], text=True)
    at = {name: int(address, 16) for address, name in
          re.findall(r"^(\w+) \w _ZN2v88internal7Version6(major|build)_E$", said, re.M)}
    # {part of the version: value and size of its symbol}. V8 itself does not use the symbols, so the copy runs.
    symbol = {name: struct.pack("<QQ", address, 4) for name, address in at.items()}
    with open(node, "rb") as f:
        file = f.read()
    with open(copy, "wb") as f:
        f.write(file.replace(symbol["major"], symbol["build"]))
    os.chmod(copy, 0o755)


def is_native(frames):
    """Whether FRAMES are a complete stack of native and kernel frames only."""
    return {kind for kind, *_ in frames} <= {"native", "kernel"} and frames[-1][1] in v8_stacks.ROOTS


def unknown():
    """Programs of unknown versions get complete stacks of native frames, and log and metrics report them as unsupported."""
    problems, found = [], nodes()
    port = 13900 + os.getpid() % 90
    for major in {min(found), max(found)}:
        with tempfile.TemporaryDirectory(prefix="kiln-test-") as directory:
            newer = os.path.join(directory, "node")
            of_unknown_version(found[major], newer)
            with Program(newer) as run, agent.Agent("--pid", run.pid, config=CONFIG.format(port=port, more="")) as a:
                whole, begin = 0, time.monotonic()
                # On a busy machine it takes longer until the program's tables are read.
                while time.monotonic() < begin + SECONDS or whole < ENOUGH and time.monotonic() < begin + 9 * SECONDS:
                    time.sleep(1)
                    whole = sum(value for _, value, frames in samples(a.stdout()) if is_native(frames))
                counted = agent.metrics(f"http://127.0.0.1:{port}/metrics")
                if a.stop(60):
                    raise RuntimeError(f"agent: {a.stderr()[-500:]}")
                text, said = a.stdout(), a.stderr()
        total = whole = first = 0
        for _, value, frames in samples(text):
            total += value
            if is_native(frames):
                whole += value
            elif BEFORE & {name for _, name, *_ in frames}:
                first += value
            else:
                print(f"    {value}: {frames}")
        print(f"node {major} of a V8 that is not known: {whole} of {total} samples whole, {first} before tables were read")
        if whole < ENOUGH or total - whole - first > max((1 - WHOLE) * total, 1):
            problems.append(f"node {major}, unknown: {whole} of {total} samples are whole")
        if not re.search(r"v8: .*node: only its native frames are shown: V8 \d+\.\d+\.\d+ is not known", said):
            problems.append(f"node {major}, unknown: {said[-500:]}")
        if counted['kiln_runtime_attach_total{result="unsupported"}'] != 1:
            problems.append(f"node {major}, unknown: not counted as unsupported")
    return problems


def main():
    if not nodes():
        return 77
    problems = {"chains": chains, "toggle": toggle, "unknown": unknown}[sys.argv[1] if len(sys.argv) > 1 else "chains"]()
    for problem in problems:
        print(f"FAILED: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
