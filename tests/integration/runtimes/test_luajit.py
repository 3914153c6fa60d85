#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""LuaJIT's interpreters under the agent: what a sample shows is what the program does.
usage: test_luajit.py chains|special|VERSION   (exit 77: no interpreter)"""
import collections
import contextlib
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from kiln import agent, textdump  # noqa: E402
import ports  # noqa: E402
import luajit_stacks  # noqa: E402

LONG = os.environ.get("KILN_LONG") == "1"
SAMPLES = 2050 if LONG else 400  # of each program: each chain lasts 0.1 s
PROGRAMS = os.environ.get("KILN_RUNTIME_PROGRAMS", "")
# {way: (options of luajit, chains)}: chains with long leaves, and short ones, which are always on their way; JIT off and on.
WAYS = {"off": (("-joff",), ()), "on": ((), ()), "short-off": (("-joff",), ("short",)), "short-on": ((), ("short",))}


def chains_of(roots):
    """Runs all WAYS of all versions, ROOTS: {version: root directory}, at the same time; [problem]."""
    with contextlib.ExitStack() as stack:
        programs = {f"{version}, {way}": stack.enter_context(luajit_stacks.Program(root, *arguments, options=options))
                    for version, root in roots.items() for way, (options, arguments) in WAYS.items()}
        pids = [p.pid for p in programs.values()]
        with agent.Agent(*sum((["--pid", pid] for pid in pids), []), config=luajit_stacks.config(hz=199)) as a:
            text = luajit_stacks.run_until(a, luajit_stacks.have(SAMPLES, pids))
    samples = textdump.parse(text.splitlines())
    problems = []
    for name, program in programs.items():
        problems += luajit_stacks.judge(name, [s for s in samples if s.pid == program.pid], program.said)
    return problems


def chains(*versions):
    """Tests VERSIONS at the same time; with KILN_LONG=1 one after another. [problem], or None when all are skipped."""
    problems, lacking, roots = [], {}, {}
    for version in versions:
        root, why = luajit_stacks.interpreter(version)
        if why:
            lacking[version] = why
            print(f"SKIPPED: LuaJIT of {version}: {why}")
        else:
            roots[version] = root
    for group in [{version: root} for version, root in roots.items()] if LONG else [roots] if roots else []:
        problems += chains_of(group)
    return None if not problems and len(lacking) == len(versions) else problems


def special():
    """Special cases: a program that only claims to be LuaJIT, a build with 32-bit references, and the tracer off."""
    root, why = luajit_stacks.interpreter("bookworm")
    if why:
        print(f"SKIPPED: {why}")
        return None
    return forged() + toggle(root) + unknown()


def forged():
    """The forged program's stacks are marked as cut, have native frames, and are not deeper than allowed."""
    with subprocess.Popen([os.path.join(PROGRAMS, "luajit-forged")], stdout=subprocess.DEVNULL) as p:
        try:
            with agent.Agent("--pid", p.pid, config=luajit_stacks.config(hz=199)) as a:
                text = luajit_stacks.run_until(
                    a, lambda output: len(output.said[p.pid] - {cut[5:] for cut in luajit_stacks.BEFORE}) >= 2 and
                    output.samples[p.pid] > 50)
        finally:
            p.kill()
    samples = [s for s in textdump.parse(text.splitlines()) if s.pid == p.pid]
    said = collections.Counter(name for s in samples for kind, name in s.frames if kind == "abort-marker")
    print(f"{'forged':18} {sum(s.value for s in samples):6} samples: {dict(said)}")
    problems = []
    if not samples or not all(any(kind == "native" for kind, _ in s.frames) for s in samples):
        problems.append("forged: samples without native frames")
    if any(len(s.frames) > 3 * 1024 for s in samples):
        problems.append("forged: a stack of more than 3072 frames")
    return problems


def seen(root, more, enough):
    """{(type, name)} of all frames of a program with one chain, except kernel frames."""
    with luajit_stacks.Program(root, "methods", options=("-joff",)) as p:
        with agent.Agent("--pid", p.pid, config=luajit_stacks.config(hz=199, more=more)) as a:
            text = luajit_stacks.run_until(a, lambda output: enough(output, p.pid))
    complete = [s for s in textdump.parse(text.splitlines()) if not {f"cut: {name}" for _, name in s.frames} & luajit_stacks.BEFORE]
    return {frame for s in complete for frame in s.frames if frame[0] != "kernel"}


def toggle(root):
    """With the tracer off there are only native frames, and no marker of missing LuaJIT frames."""
    off = seen(root, '    tracers: "native,kernel,python"', lambda output, pid: output.all[pid] > 50)
    hidden = seen(root, "    luajit: {native_frames: false}", lambda output, pid: output.samples[pid] > 25)
    problems = []
    if not off or any(kind != "native" for kind, _ in off):
        problems.append(f"toggle: with the tracer off there are {off}")
    if ("luajit", "price") not in hidden or ("native", "lua_pcall") in hidden:
        problems.append(f"toggle: without native frames there are {hidden}")
    return problems


def unknown():
    """An unknown build gets native frames, and the log tells why."""
    port = ports.free_port()
    with subprocess.Popen([os.path.join(PROGRAMS, "luajit-unknown")], stdout=subprocess.DEVNULL) as p:
        try:
            with agent.Agent("--pid", p.pid, config=luajit_stacks.config(hz=199, port=port)) as a:
                a.wait_ready(luajit_stacks.PATIENCE, f"http://127.0.0.1:{port}/readyz")
                text = luajit_stacks.run_until(a, lambda output: output.all[p.pid] > 50 and "32-bit" in a.stderr())
                samples, said = textdump.parse(text.splitlines()), a.stderr()
        finally:
            p.kill()
    problems = []
    if "LuaJIT with 32-bit references" not in said:
        problems.append(f"unknown: the log has {said[-300:]!r}")
    if not any("lj_vm" in s.user for s in samples) or any(kind == "luajit" for s in samples for kind, _ in s.frames):
        problems.append("unknown: not its native frames only")
    return problems


def main():
    what = sys.argv[1]
    if os.geteuid():
        print("skipped: not root")
        return 77
    if what == "chains":
        versions = luajit_stacks.VERSIONS if os.environ.get("KILN_MATRIX") == "1" else luajit_stacks.VERSIONS[::2]
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
