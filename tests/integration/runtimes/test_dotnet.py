#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
""".NET's runtimes under the agent: what a sample shows is what the program does.
usage: test_dotnet.py chains|special|VERSION   (exit 77: no runtime)"""
import collections
import contextlib
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from kiln import agent, textdump  # noqa: E402
import ports  # noqa: E402
import dotnet_stacks  # noqa: E402
import perl_stacks  # noqa: E402

LONG = os.environ.get("KILN_LONG") == "1"
SAMPLES = 2050 if LONG else 450  # of each version: each chain lasts 0.1 s
PROGRAMS = os.environ.get("KILN_RUNTIME_PROGRAMS", "")


def programs(versions, stack, *chains, env=None):
    """Starts a program with each of VERSIONS: ({version: Program}, {version: why it is not available})."""
    running, lacking = {}, {}
    work, why = dotnet_stacks.compile_work()
    for version in versions:
        root, lacks = dotnet_stacks.runtime(version) if work else (None, why)
        if root:
            running[version] = stack.enter_context(dotnet_stacks.Program(version, root, work, *chains, env=env))
        else:
            lacking[version] = lacks
    return running, lacking


def chains_of(versions, env=None):
    """Runs the chains of VERSIONS at the same time: ([problem], {version: why it is not available})."""
    problems = []
    with contextlib.ExitStack() as stack:
        running, lacking = programs(versions, stack, env=env)
        pids = [p.pid for p in running.values()]
        if not pids:
            return problems, lacking
        with agent.Agent(*sum((["--pid", pid] for pid in pids), []), config=dotnet_stacks.config()) as a:
            text = dotnet_stacks.run_until(a, perl_stacks.have(SAMPLES, pids))
    samples = textdump.parse(text.splitlines())
    for version, program in running.items():
        problems += dotnet_stacks.judge(f".NET {version}", [s for s in samples if s.pid == program.pid])
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
        print(f"SKIPPED: .NET {version}: {why}")
    if not problems and len(lacking) == len(versions):
        return None
    return problems


def seen(more, enough):
    """The samples of a program with one chain; None when .NET 8 is not available."""
    with contextlib.ExitStack() as stack:
        running, _ = programs(["8"], stack, "recursion")
        if not running:
            return None
        pid = running["8"].pid
        with agent.Agent("--pid", pid, config=dotnet_stacks.config(more=more)) as a:
            text = dotnet_stacks.run_until(a, lambda output: enough(output, pid))
    return [s for s in textdump.parse(text.splitlines()) if s.pid == pid]


def toggle():
    """With the tracer off there are only native frames, and no marker of missing .NET frames."""
    off = seen('    tracers: "native,kernel,python"', lambda output, pid: output.all[pid] > 100)
    if off is None:
        return None
    kinds = collections.Counter(kind for s in off for kind, _ in s.frames)
    print(f"tracer off: {dict(kinds)}")
    return [] if set(kinds) <= {"native", "kernel"} and kinds["native"] else [f"toggle: with the tracer off there are {kinds}"]


def without_second_mapping():
    """With DOTNET_EnableWriteXorExecute=0 compiled code is in anonymous memory."""
    with contextlib.ExitStack() as stack:
        running, lacking = programs(["8"], stack, "recursion", "small", "native",
                                    env={"DOTNET_EnableWriteXorExecute": "0"})
        if lacking:
            return None
        pid = running["8"].pid
        with agent.Agent("--pid", pid, config=dotnet_stacks.config()) as a:
            text = dotnet_stacks.run_until(a, perl_stacks.have(100, [pid]))
    return dotnet_stacks.judge("W^X off", [s for s in textdump.parse(text.splitlines()) if s.pid == pid])


def forged():
    """A program that only claims to be .NET gets native frames, and the agent goes on."""
    port = ports.free_port()
    with subprocess.Popen([os.path.join(PROGRAMS, "dotnet-forged")], stdout=subprocess.DEVNULL,
                          preexec_fn=lambda: os.nice(10)) as p:
        try:
            with agent.Agent("--pid", p.pid, config=dotnet_stacks.config(port=port)) as a:
                a.wait_ready(perl_stacks.PATIENCE, f"http://127.0.0.1:{port}/readyz")
                text = dotnet_stacks.run_until(a, lambda output: len(output.said[p.pid] - dotnet_stacks.BEFORE) >= 1 and
                                               output.all[p.pid] > 300)
        finally:
            p.kill()
    samples = textdump.parse(text.splitlines())
    said = collections.Counter(name for s in samples for kind, name in s.frames if kind == "abort-marker")
    print(f"forged: {sum(s.value for s in samples)} samples: {dict(said)}")
    problems = []
    if not all(any(kind == "native" for kind, _ in s.frames) for s in samples):
        problems.append("forged: samples without native frames")
    if any(len(s.frames) > 3 * 1024 for s in samples):
        problems.append("forged: a stack of more than 3072 frames")
    return problems


def special():
    problems = forged()
    for more in (toggle, without_second_mapping):
        found = more()
        if found is None:
            print(f"SKIPPED: {more.__name__}: no .NET 8")
        problems += found or []
    return problems


def main():
    what = sys.argv[1]
    if os.geteuid():
        print("skipped: not root")
        return 77
    if what == "chains":
        versions = dotnet_stacks.VERSIONS
        problems = chains(*(versions if os.environ.get("KILN_MATRIX") == "1" else (versions[0], versions[-1])))
    elif what == "special":
        problems = special()
    else:
        problems = chains(*sys.argv[1:])
    for problem in problems or []:
        print(problem)
    return 77 if problems is None else 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
