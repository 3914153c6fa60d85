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
    """[problem] of {name: program}."""
    pids = [program.pid for program in programs.values()]
    with agent.Agent(*sum((["--pid", pid] for pid in pids), []), config=beam_stacks.config(hz=hz)) as a:
        text = beam_stacks.run_until(a, beam_stacks.have(least, pids))
    samples, problems = textdump.parse(text.splitlines()), []
    for name, program in programs.items():
        problems += beam_stacks.judge(name, [s for s in samples if s.pid == program.pid], program, least=1 if least == SAMPLES else 0)
    return problems


def chains(*releases):
    """Together, or with KILN_LONG=1 one after the other, each with all CPUs."""
    problems, lacking = [], {}
    with contextlib.ExitStack() as stack:
        programs = {}
        for release in releases:
            root, why = beam_stacks.machine(release)
            if why:
                lacking[release] = why
                continue
            program = stack.enter_context(beam_stacks.Program(root, "+S", "2", dirty=release != "29"))
            if LONG:
                problems += judge({release: program})
                program.close()
            else:
                programs[release] = program
        problems += judge(programs) if programs else []
    for release, why in lacking.items():
        print(f"SKIPPED: Erlang/OTP {release}: {why}")
    return None if not problems and len(lacking) == len(releases) else problems


# ---- special

def options(root):
    """Frame pointers and code that is written where it is executed (+JPperf true), and one scheduler."""
    with contextlib.ExitStack() as stack:
        programs = {" ".join(more): stack.enter_context(beam_stacks.Program(root, *more, works=["recursion", "many", "joined", "thrown", "tuples",
                                                                                               "counted", "told"]))
                    for more in (["+S", "2", "+JPperf", "true"], ["+S", "1"])}
        return judge(programs, least=FEW * 4)


def seen(root, more, enough):
    """{(type, name)} of all frames of a program that does one thing."""
    with beam_stacks.Program(root, "+S", "2", works=["recursion", "joined"]) as p:
        with agent.Agent("--pid", p.pid, config=beam_stacks.config(hz=197, more=more)) as a:
            text = beam_stacks.run_until(a, lambda output: enough(output, p.pid))
    complete = [s for s in textdump.parse(text.splitlines()) if not {f"cut: {name}" for _, name in s.frames} & beam_stacks.BEFORE]
    return {frame for s in complete for frame in s.frames if frame[0] != "kernel"}


def toggle(root):
    """Without the tracer there are native frames only, and no word about Erlang's."""
    off = seen(root, '    tracers: "native,kernel,python"', lambda output, pid: output.all[pid] > FEW)
    on = seen(root, "", lambda output, pid: output.all[pid] > FEW)
    problems = []
    if not off or any(kind not in ("native", "abort-marker") or "[beam" in name for kind, name in off):
        problems.append(f"toggle: with the tracer off there are {off}")
    if ("beam", "beam_work:spin/2") not in on:
        problems.append(f"toggle: with the tracer on there are {on}")
    return problems


def interpreter():
    """A release without the JIT has its native frames, whole, and it is said why."""
    root, why = beam_stacks.machine("23")
    if why:
        print(f"SKIPPED: Erlang/OTP 23: {why}")
        return []
    with beam_stacks.Program(root, "+S", "2", works=["recursion", "joined"]) as p:
        with agent.Agent("--pid", p.pid, config=beam_stacks.config(hz=197)) as a:
            text = beam_stacks.run_until(a, lambda output: output.all[p.pid] > FEW and "Erlang/OTP 23" in a.stderr())
            said = a.stderr()
    samples, problems = textdump.parse(text.splitlines()), []
    if "Erlang/OTP 23: want 25 to 29" not in said:
        problems.append(f"interpreter: the log has {said[-300:]!r}")
    whole = sum(s.value for s in samples if any(kind == "native" and name == "process_main" for kind, name in s.frames) and
                s.user and s.user[-1] in beam_stacks.ROOTS | {"start_thread"} or s.user and s.user[-1].startswith("libc"))
    if whole < FEW / 2 or any(kind == "beam" for s in samples for kind, _ in s.frames):
        problems.append(f"interpreter: {whole} of {len(samples)} stacks are whole")
    return problems


def forged():
    """One that only says that it is Erlang: its stacks are cut and say so, and none is deeper than allowed."""
    with subprocess.Popen([FORGED], stdout=subprocess.DEVNULL, preexec_fn=lambda: os.nice(10)) as p:
        try:
            with agent.Agent("--pid", p.pid, config=beam_stacks.config(hz=197)) as a:
                text = beam_stacks.run_until(a, lambda output: output.all[p.pid] > 8 * FEW)
        finally:
            p.kill()
    samples = textdump.parse(text.splitlines())
    said = collections.Counter(name for s in samples for kind, name in s.frames if kind == "abort-marker")
    print(f"{'forged':12} {sum(s.value for s in samples):6} samples: {dict(said)}")
    problems = []
    if any(len(s.frames) > 3 * 1024 for s in samples):
        problems.append("forged: a stack of more than 3072 frames")
    if not any(kind == "beam" for s in samples for kind, _ in s.frames) or not any("[beam: " in name for name in said):
        problems.append("forged: it is not taken for Erlang, or believed")
    return problems


def special():
    root, why = beam_stacks.machine("25")
    if why:
        print(f"SKIPPED: Erlang/OTP 25: {why}")
        return None
    return options(root) + toggle(root) + interpreter() + forged()


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
