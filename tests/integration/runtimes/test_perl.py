#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Perl's interpreters under the agent: what a sample shows is what the program does.
usage: test_perl.py chains|special|VERSION|/PATH/TO/PERL   (exit 77: no interpreter)"""
import collections
import contextlib
import glob
import os
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from kiln import agent, textdump  # noqa: E402
import ports  # noqa: E402
import perl_stacks  # noqa: E402

SPECIAL = 0.97  # smallest share of complete samples of processes that start, fork and end
LONG = os.environ.get("KILN_LONG") == "1"
SAMPLES = 2050 if LONG else 450  # of each version: each chain lasts 0.1 s
SPECIAL_SAMPLES = 40  # of each process
PROGRAMS = os.environ.get("KILN_RUNTIME_PROGRAMS", "")


def chains_of(versions):
    """Runs the chains of VERSIONS at the same time: ([problem], {version: why it is not available})."""
    problems, lacking = [], {}
    with contextlib.ExitStack() as stack:
        programs = {}
        for version in versions:
            if version.startswith("/"):
                programs[version] = stack.enter_context(perl_stacks.Program(program=version))
                continue
            root, why = perl_stacks.interpreter(version)
            if why:
                lacking[version] = why
            else:
                programs[version] = stack.enter_context(perl_stacks.Program(root=root))
        pids = sum((["--pid", p.pid] for p in programs.values()), [])
        if not pids:
            return problems, lacking
        with agent.Agent(*pids, config=perl_stacks.config()) as a:
            text = perl_stacks.run_until(a, perl_stacks.have(SAMPLES, [p.pid for p in programs.values()]))
    samples = textdump.parse(text.splitlines())
    for version, program in programs.items():
        problems += perl_stacks.judge(version, [s for s in samples if s.pid == program.pid], program.said)
    return problems, lacking


def chains(*versions):
    """Tests VERSIONS at the same time; with KILN_LONG=1 one after another. [problem], or None when all are skipped."""
    groups = [[version] for version in versions] if LONG else [versions]
    problems, lacking = [], {}
    for group in groups:
        more, missing = chains_of(group)
        problems += more
        lacking.update(missing)
    for version, why in lacking.items():
        print(f"SKIPPED: Perl {version}: {why}")
    if not problems and len(lacking) == len(versions):
        return None
    return problems


class Short(threading.Thread):
    """A thread that starts programs one after another and kills them in the middle of their work."""

    def __init__(self):
        super().__init__(daemon=True)
        self.over, self.n = threading.Event(), 0
        self.start()

    def run(self):
        while not self.over.is_set():
            with subprocess.Popen(["/usr/bin/perl", perl_stacks.WORK, "recursion", "closures"], stdout=subprocess.DEVNULL,
                                  env={**os.environ, "LC_ALL": "C"}) as p:
                time.sleep(0.25)
                p.kill()
            self.n += 1

    def close(self):
        self.over.set()
        self.join()


def special():
    """Special cases: threads, workers, libperl.so, exec, processes that die, and a program that only claims to be Perl."""
    problems, programs = [], {}
    shared = sorted(glob.glob("/usr/bin/perl5.*-*-linux-gnu"))
    with contextlib.ExitStack() as stack:
        def start(name, *arguments, program="/usr/bin/perl"):
            programs[name] = stack.enter_context(perl_stacks.Program(*arguments, program=program))

        start("threads", "--thread", "recursion", "sort_block", "closures", "by_tie")
        with agent.Agent("--process-filter", "^perl", config=perl_stacks.config()) as a:
            start("workers", "--fork", "2", "recursion", "methods", "eval_string")
            start("exec", "--exec", "/usr/bin/perl", "recursion", "by_first")
            start("respawn", "--respawn", "recursion", "by_require")
            if shared:
                start("shared", "by_regex", "by_lexical", program=shared[0])
            short = Short()
            stack.callback(short.close)
            forged = stack.enter_context(subprocess.Popen([os.path.join(PROGRAMS, "perl-forged")], stdout=subprocess.DEVNULL,
                                                          preexec_fn=lambda: os.nice(10)))
            stack.callback(forged.kill)
            text = perl_stacks.run_until(a, Enough(programs, forged.pid))
        programs["respawn"].said["pids"] = programs["respawn"].children()
    samples = textdump.parse(text.splitlines())
    for name, program in programs.items():
        mine = [s for s in samples if s.pid in program.said["pids"] and working(s)]
        problems += perl_stacks.judge(name, mine, program.said, complete=SPECIAL)
    print(f"{short.n} short processes")
    return problems + judge_names(samples) + judge_forged([s for s in samples if s.pid == forged.pid]) + toggle() + unknown()


class Enough:
    """A condition for run_until(): samples of each process, after exec too, and three different markers of the forged one."""

    def __init__(self, programs, forged):
        self.executed, self.respawned, self.forged = programs["exec"], programs["respawn"], forged
        self.pids = sum((p.said["pids"] for p in programs.values() if p != self.respawned), [])
        self.before_exec = None

    def __call__(self, seen):
        if self.executed.again() and self.before_exec is None:
            self.before_exec = seen.samples[self.executed.pid]
        children = self.respawned.children()
        return (perl_stacks.have(SPECIAL_SAMPLES, self.pids)(seen) and self.before_exec is not None and
                seen.samples[self.executed.pid] >= self.before_exec + SPECIAL_SAMPLES and
                sum(seen.samples[pid] for pid in children) >= SPECIAL_SAMPLES and
                len(seen.said[self.forged] - {cut[5:] for cut in perl_stacks.BEFORE}) >= 3)


def working(sample):
    """Whether the sample is of main::run, not of parsing the program, loading modules or creating a worker."""
    found = [f for f in perl_stacks.frames(sample) if f != "|"]
    return any(f[0] == "main::run" for f in found) or not found and "perl_parse" not in sample.user


def judge_names(samples):
    """Samples carry their names, so samples of processes that have ended are named, too."""
    total = sum(s.value for s in samples if perl_stacks.frames(s))
    nameless = sum(s.value for s in samples if any("no name" in name for _, name in s.frames))
    print(f"{nameless} of {total} samples have frames without name")
    return [f"names: {nameless} of {total} samples lack some"] if nameless > 0.01 * total else []


def judge_forged(samples):
    """The forged program's stacks are marked as cut, have native frames, and are not deeper than allowed."""
    problems = []
    said = collections.Counter(name for s in samples for kind, name in s.frames if kind == "abort-marker")
    print(f"{'forged':12} {sum(s.value for s in samples):6} samples: {dict(said)}")
    if not samples or not all(any(kind == "native" for kind, _ in s.frames) for s in samples):
        problems.append("forged: samples without native frames")
    if any(len(s.frames) > 3 * 1024 for s in samples):
        problems.append("forged: a stack of more than 3072 frames")
    return problems


def seen(more, enough):
    """{(type, name)} of all frames of a program with one chain, except kernel frames."""
    with perl_stacks.Program("by_tie") as p:
        with agent.Agent("--pid", p.pid, config=perl_stacks.config(more=more)) as a:
            text = perl_stacks.run_until(a, lambda output: enough(output, p.pid))
    complete = [s for s in textdump.parse(text.splitlines()) if not {f"cut: {name}" for _, name in s.frames} & perl_stacks.BEFORE]
    return {frame for s in complete for frame in s.frames if frame[0] != "kernel"}


def toggle():
    """With the tracer off there are only native frames, and no marker of missing Perl frames. With native_frames off only
    the frames of the interpreter's own file are left out."""
    off = seen('    tracers: "native,kernel,python"', lambda output, pid: output.all[pid] > 100)
    hidden = seen("    perl: {native_frames: false}", lambda output, pid: output.samples[pid] > 50)
    problems = []
    if not off or any(kind != "native" for kind, _ in off):
        problems.append(f"toggle: with the tracer off there are {off}")
    if ("perl", "Tied::FETCH") not in hidden or ("native", perl_stacks.LOOP) in hidden or ("native", "_start") in hidden:
        problems.append(f"toggle: without native frames there are {hidden}")
    return problems


def unknown():
    """An unknown version gets native frames, and the log tells why."""
    port = ports.free_port()
    with subprocess.Popen([os.path.join(PROGRAMS, "perl-unknown")], stdout=subprocess.DEVNULL) as p:
        try:
            with agent.Agent("--pid", p.pid, config=perl_stacks.config(port=port)) as a:
                a.wait_ready(perl_stacks.PATIENCE, f"http://127.0.0.1:{port}/readyz")
                counted = {}

                def enough(output):
                    counted.update(agent.metrics(f"http://127.0.0.1:{port}/metrics"))
                    return output.all[p.pid] > 100 and "5.46.0" in a.stderr()

                samples = textdump.parse(perl_stacks.run_until(a, enough).splitlines())
                said = a.stderr()
        finally:
            p.kill()
    problems = []
    if "Perl 5.46.0: want 5.26 to 5.44" not in said:
        problems.append(f"unknown: the log has {said[-300:]!r}")
    if not counted['kiln_runtime_attach_total{result="unsupported"}']:
        problems.append("unknown: it is not counted")
    if not any(perl_stacks.LOOP in s.user for s in samples) or any(kind == "perl" for s in samples for kind, _ in s.frames):
        problems.append("unknown: not its native frames only")
    return problems


def main():
    what = sys.argv[1]
    if os.geteuid():
        print("skipped: not root")
        return 77
    if what == "chains":
        versions = perl_stacks.VERSIONS if os.environ.get("KILN_MATRIX") == "1" else perl_stacks.VERSIONS[::len(
            perl_stacks.VERSIONS) - 1]
        problems = chains(*versions)
    elif what == "special":
        problems = special()
    else:
        problems = chains(*sys.argv[1:])
    for problem in problems or []:
        print(problem)
    return 77 if problems is None else 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
