#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Erlang's machines under the agent: what a sample shows is what the program does.
usage: test_beam.py chains|special|RELEASE...   (exit 77: no machine)"""
import collections
import contextlib
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from kiln import agent, textdump  # noqa: E402
import beam_stacks  # noqa: E402

LONG = os.environ.get("KILN_LONG") == "1"
SAMPLES = 2600 if LONG else 900  # of each release
FEW = 40
FORGED = os.path.join(os.environ.get("KILN_RUNTIME_PROGRAMS", ""), "beam-forged")


def judge(programs, hz=197, least=SAMPLES):
    """Profiles PROGRAMS, {name: Program}, at the same time; [problem]."""
    pids = [program.pid for program in programs.values()]
    with agent.Agent(*sum((["--pid", pid] for pid in pids), []), config=beam_stacks.config(hz=hz)) as a:
        text = beam_stacks.run_until(a, beam_stacks.have(least, pids))
    samples, problems = textdump.parse(text.splitlines()), []
    for name, program in programs.items():
        problems += beam_stacks.judge(name, [s for s in samples if s.pid == program.pid], program, least=1 if least == SAMPLES else 0)
    return problems


def chains(*releases):
    """Tests RELEASES at the same time; with KILN_LONG=1 one after another. [problem], or None when all are skipped."""
    problems, lacking = [], {}
    with contextlib.ExitStack() as stack:
        programs = {}
        for release in releases:
            root, why = beam_stacks.machine(release)
            if why:
                lacking[release] = why
                continue
            program = beam_stacks.Program(root, "+S", "2", dirty=release != "29")
            if LONG:
                with program:
                    problems += judge({release: program})
            else:
                programs[release] = stack.enter_context(program)
        problems += judge(programs) if programs else []
    for release, why in lacking.items():
        print(f"SKIPPED: Erlang/OTP {release}: {why}")
    return None if not problems and len(lacking) == len(releases) else problems


# ---- special

def toggle(root):
    """With the tracer off there are only native frames, and no marker of missing Erlang frames."""
    with beam_stacks.Program(root, "+S", "2", works=["recursion", "joined"]) as p:
        with agent.Agent("--pid", p.pid, config=beam_stacks.config(hz=197, more='    tracers: "native,kernel,python"')) as a:
            text = beam_stacks.run_until(a, lambda output: output.all[p.pid] > FEW)
    off = {frame for s in textdump.parse(text.splitlines()) for frame in s.frames if frame[0] != "kernel"}
    if not off or any(kind not in ("native", "abort-marker") or "[beam" in name for kind, name in off):
        return [f"toggle: with the tracer off there are {off}"]
    return []


def judge_interpreter(samples, said):
    """A release without the JIT gets complete stacks of native frames, and the log tells why."""
    problems = []
    if "Erlang/OTP 23: want 25 to 29" not in said:
        problems.append(f"interpreter: the log has {said[-300:]!r}")
    whole = [s for s in samples if ("native", "process_main") in s.frames and
             (s.user[-1] in beam_stacks.ROOTS or s.user[-1].startswith("libc"))]
    print(f"{'23':12} {len(samples):6} samples, {len(whole)} of process_main()")
    if len(whole) < len(samples) / 2 or any(kind in ("beam", "abort-marker") for s in whole for kind, _ in s.frames):
        problems.append(f"interpreter: {len(whole)} of {len(samples)} stacks are whole")
    return problems


def judge_forged(samples):
    """The forged program's stacks are marked as cut, and are not deeper than allowed."""
    said = collections.Counter(name for s in samples for kind, name in s.frames if kind == "abort-marker")
    print(f"{'forged':12} {sum(s.value for s in samples):6} samples: {dict(said)}")
    problems = []
    if any(len(s.frames) > 3 * 1024 for s in samples):
        problems.append("forged: a stack of more than 3072 frames")
    if not any(kind == "beam" for s in samples for kind, _ in s.frames) or not any("[beam: " in name for name in said):
        problems.append("forged: it is not taken for Erlang, or believed")
    return problems


def special():
    """Special cases: frame pointers and code that is written at the address where it runs (+JPperf true), a release without
    the JIT, a program that only claims to be Erlang, and the tracer off."""
    (root, why), (old, why_not) = beam_stacks.machine("25"), beam_stacks.machine("23")
    for release, reason in ("25", why), ("23", why_not):
        if reason:
            print(f"SKIPPED: Erlang/OTP {release}: {reason}")
    if why:
        return None
    works = ["recursion", "many", "joined", "thrown", "tuples", "counted", "told"]
    with contextlib.ExitStack() as stack:
        program = stack.enter_context(beam_stacks.Program(root, "+S", "2", "+JPperf", "true", works=works))
        interpreter = stack.enter_context(beam_stacks.Program(old, "+S", "1", works=["recursion", "joined"])) if old else None
        forged = stack.enter_context(subprocess.Popen([FORGED], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, preexec_fn=lambda: os.nice(10)))
        stack.callback(forged.kill)
        pids = [p.pid for p in (program, interpreter, forged) if p]
        with agent.Agent(*sum((["--pid", pid] for pid in pids), []), config=beam_stacks.config(hz=197)) as a:
            def enough(output):
                if output.samples[forged.pid]:  # the agent takes it for Erlang: it may forge its structures now
                    forged.stdin.close()
                return output.said[forged.pid] and all(output.all[pid] > FEW * 5 for pid in pids)

            text = beam_stacks.run_until(a, enough)
            said = a.stderr()
    samples = textdump.parse(text.splitlines())
    problems = beam_stacks.judge("+JPperf true", [s for s in samples if s.pid == program.pid], program, least=0)
    if interpreter:
        problems += judge_interpreter([s for s in samples if s.pid == interpreter.pid], said)
    return problems + judge_forged([s for s in samples if s.pid == forged.pid]) + toggle(root)


def main():
    what = sys.argv[1]
    if os.geteuid():
        print("skipped: not root")
        return 77
    if what == "chains":
        releases = beam_stacks.RELEASES if os.environ.get("KILN_MATRIX") == "1" else beam_stacks.RELEASES[::len(beam_stacks.RELEASES) - 1]
        problems = chains(*releases)
    elif what == "special":
        problems = special()
    else:
        problems = chains(*sys.argv[1:])
    for problem in problems or []:
        print(problem)
    return 77 if problems is None else 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
