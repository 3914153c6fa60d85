#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ruby of several versions under the agent: what a sample shows is what the program does.
usage: test_ruby.py chains|special [VERSION...]   (exit 77: no such interpreter can be had)
Without versions the oldest and the newest one, with KILN_MATRIX=1 all; with KILN_LONG=1 each by itself, until there are
2,000 samples of it."""
import collections
import contextlib
import os
import re
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from kiln import agent, textdump  # noqa: E402
import perl_stacks  # noqa: E402
import ports  # noqa: E402
import ruby_stacks  # noqa: E402

# In the default run, with few samples, one or two may be taken during a switch to a fiber or ractor.
COMPLETE = 0.995 if os.environ.get("KILN_LONG") == "1" else 0.99
# The largest share of samples that may be taken on the way to a chain's leaf or back (their frames are checked, too): 1 to
# 2 % on an idle machine, 4 % when other programs take 40 % of its CPU time.
BETWEEN = 0.08
SPECIAL = 0.95  # smallest share of complete samples of processes that start, fork and load
NOT_READ = "cut: [ruby: not read yet]"
BEFORE = {f"cut: {end}" for end in textdump.before_attaching("ruby")}
LONG = 2000  # samples
PROGRAMS = os.environ.get("KILN_RUNTIME_PROGRAMS", "")


def roots(wanted):
    """{version: root directory} of the versions that are available."""
    if not wanted:
        wanted = ruby_stacks.VERSIONS if os.environ.get("KILN_MATRIX") == "1" else ruby_stacks.VERSIONS[::3]
    found = {}
    for version in wanted:
        root, why = ruby_stacks.root_of(version)
        if root:
            found[version] = root
        else:
            print(f"skipped: Ruby {version}: {why}")
    return found


def judge(name, samples, said, least=40, complete=COMPLETE):
    """Prints how many samples of a program are right; [problem]. Samples from before the agent attached to the interpreter are
    marked in their stacks and not counted."""
    why = collections.Counter()
    total = shown = 0
    for s in samples:
        reason = ruby_stacks.wrong(s, said)
        total += s.value
        if reason not in BEFORE:
            shown += s.value
            why[reason] += s.value
    right = why.pop(None, 0)
    between = sum(n for reason, n in why.items() if reason.startswith(ruby_stacks.BETWEEN))
    shown -= between
    print(f"{name:12} {total:6} samples, {total - shown - between:4} before attaching, {between:3} on the way, "
          f"{right / max(shown, 1):8.2%} complete", flush=True)
    for reason, n in why.most_common(5):
        print(f"    {n:4} {reason}")
    if shown < least:
        return [f"{name}: {shown} samples are too few"]
    if shown - right > max((1 - complete) * shown, 1):
        return [f"{name}: {right / shown:.2%} of the samples are complete"]
    if between > max(BETWEEN * shown, 6):
        return [f"{name}: {between} of {shown} samples show no work"]
    return []


class Output(perl_stacks.Output):
    LANGUAGE = "ruby"


def run_until(a, enough):
    return perl_stacks.run_until(a, enough, Output)


def chains(found):
    # Of Debian's versions 3.1 has a JIT compiler (YJIT).
    named = {version: (version, root, []) for version, root in found.items()}
    if "3.1" in found:
        named["3.1 YJIT"] = ("3.1", found["3.1"], ["--yjit"])
    long = os.environ.get("KILN_LONG") == "1"
    groups = [[name] for name in named] if long else [list(named)]
    problems = []
    for group in groups:
        with contextlib.ExitStack() as stack:
            programs = {name: stack.enter_context(ruby_stacks.Program(
                *named[name][:2], *(["--plain"] if named[name][2] else []), ruby=named[name][2])) for name in group}
            pids = sum((["--pid", p.pid] for p in programs.values()), [])
            with agent.Agent(*pids, config=ruby_stacks.config()) as a:
                text = run_until(a, perl_stacks.have(LONG * 1.02 if long else 200, [p.pid for p in programs.values()]))
        samples = textdump.parse(text.splitlines())
        for name, program in programs.items():
            problems += judge(name, [s for s in samples if s.pid == program.pid], program.said)
    return problems


class Short(threading.Thread):
    """A thread that starts interpreters one after another and kills them in the middle of their work."""

    def __init__(self, version, root):
        super().__init__(daemon=True)
        self.command = ["chroot", root, f"/usr/bin/ruby{version}", "-e", "def go(n) = n == 0 ? loop { } : go(n - 1); go(50)"]
        self.over, self.n = threading.Event(), 0
        self.start()

    def run(self):
        while not self.over.is_set():
            with subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as p:
                time.sleep(0.3)
                p.kill()
            self.n += 1

    def close(self):
        self.over.set()
        self.join()


def special(found):
    """Special cases: a server with forked workers, and programs that start later, die, or only claim to be Ruby."""
    version, root = list(found.items())[-1]
    problems, programs = [], {}
    with contextlib.ExitStack() as stack:
        programs["workers"] = stack.enter_context(ruby_stacks.Program(version, root, "--fork", "by_instance", "by_nest"))
        with agent.Agent("--process-filter", "^ruby", config=ruby_stacks.config()) as a:
            time.sleep(1)
            programs["late"] = stack.enter_context(ruby_stacks.Program(version, root, "by_each", "by_rescue", "by_fiber"))
            programs["forged"] = stack.enter_context(Forged())
            short = Short(version, root)
            stack.callback(short.close)
            pids = programs["workers"].said["pids"] + [programs["late"].pid]
            forged, over = programs["forged"].pid, time.monotonic() + 8
            samples = textdump.parse(run_until(a, lambda output: perl_stacks.have(20, pids)(output) and len(
                output.said[forged] - {NOT_READ[5:]}) >= 2 and time.monotonic() > over).splitlines())
    for name, program in programs.items():
        mine = [s for s in samples if s.pid in program.said.get("pids", [program.pid])]
        if name == "forged":
            problems += judge_forged(mine)
        else:
            # Skip samples from before run(), while Ruby loads its libraries.
            mine = [s for s in mine if any(frame[0] == "Object#run" for frame in ruby_stacks.ruby_frames(s)) or
                    s.tid != s.pid or any(kind == "abort-marker" for kind, _ in s.frames)]
            problems += judge(name, mine, program.said, least=15, complete=SPECIAL)
    print(f"{short.n} short processes")
    return problems + toggle(version, root) + unknown()


class Forged:
    def __init__(self):
        self.process = subprocess.Popen([os.path.join(PROGRAMS, "ruby-forged")], stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()
        self.pid, self.said = self.process.pid, {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def judge_forged(samples):
    """The forged program's stacks are marked as cut, have native frames, and are not deeper than allowed."""
    problems = []
    said = collections.Counter(name for s in samples for kind, name in s.frames if kind == "abort-marker")
    names = collections.Counter(name for s in samples for kind, name in s.frames if kind == "ruby")
    print(f"{'forged':12} {sum(s.value for s in samples):6} samples: {dict(said)}, {dict(names.most_common(4))}")
    if not samples or not all(any(kind == "native" for kind, _ in s.frames) for s in samples):
        problems.append("forged: samples without native frames")
    if any(len(s.frames) > 3 * 1024 for s in samples):
        problems.append("forged: a stack of more than 3072 frames")
    if "Forged#Forged" not in names:
        problems.append("forged: no frame where the structures are right")
    if len(set(said) - {NOT_READ[5:]}) < 2:
        problems.append(f"forged: only {dict(said)} is said of the forged structures")
    return problems


def toggle(version, root):
    """With the tracer off there are only native frames, and no marker of missing Ruby frames."""
    with ruby_stacks.Program(version, root, "by_each") as p:
        config = ruby_stacks.config(more='    tracers: "native,kernel"')
        with agent.Agent("--pid", p.pid, config=config) as a:
            samples = textdump.parse(run_until(a, lambda output: output.all[p.pid] > 50).splitlines())
    kinds = {kind for s in samples for kind, _ in s.frames} - {"kernel"}
    incomplete = {name for s in samples for kind, name in s.frames if kind == "abort-marker"}
    if "native" not in kinds or kinds - {"native", "abort-marker"} or any("ruby" in name for name in incomplete):
        return [f"tracer off: {kinds}, {incomplete}"]
    return []


def unknown():
    """A program of an unknown version gets native frames, and log and metrics report it as unsupported."""
    program, port = os.path.join(PROGRAMS, "ruby-newer"), ports.free_port()
    with subprocess.Popen([program], stdout=subprocess.PIPE, text=True) as p:
        p.stdout.readline()
        with agent.Agent("--pid", p.pid, config=ruby_stacks.config(port=port)) as a:
            a.wait_ready(perl_stacks.PATIENCE, f"http://127.0.0.1:{port}/readyz")
            counted = {}

            def enough(output):
                counted.update(agent.metrics(f"http://127.0.0.1:{port}/metrics"))
                return output.all[p.pid] > 80 and "9.9" in a.stderr()

            samples, said = textdump.parse(run_until(a, enough).splitlines()), a.stderr()
        p.kill()
    problems = []
    whole = sum(s.value for s in samples if {kind for kind, _ in s.frames} <= {"native", "kernel"})
    if whole < 0.95 * sum(s.value for s in samples) - 4 or whole < 40:
        problems.append(f"unknown: {whole} samples are whole")
    if not re.search(r"ruby-newer: only its native frames are shown: Ruby 9\.9: want 2\.5 to 4\.\d", said):
        problems.append(f"unknown: {said[-500:]}")
    if counted['kiln_runtime_attach_total{result="unsupported"}'] != 1:
        problems.append("unknown: not counted as unsupported")
    return problems


def main():
    if os.geteuid():
        print("skipped: not root")
        return 77
    found = roots(sys.argv[2:])
    if not found:
        return 77
    problems = {"chains": chains, "special": special}[sys.argv[1]](found)
    for problem in problems:
        print(f"FAILED: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
