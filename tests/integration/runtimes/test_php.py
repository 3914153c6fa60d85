#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PHP of several versions under the agent: what a sample shows is what the program does.
usage: test_php.py chains|special [VERSION...]   (exit 77: no such interpreter can be had)
Without versions the oldest and the newest one, with KILN_MATRIX=1 all, as command and in php-fpm, with and without opcache
and its compilers; with KILN_LONG=1 each by itself, until there are 2,000 samples of it."""
import collections
import contextlib
import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from kiln import agent, textdump  # noqa: E402
import php_fpm  # noqa: E402
import php_stacks  # noqa: E402
import ports  # noqa: E402

COMPLETE = 0.995
BETWEEN = 0.12  # largest share of samples on the way to a chain's leaf or back, or around the chains
SPECIAL = 0.95  # smallest share of complete samples while processes start, fork and empty opcache
# The same with few samples on a busy machine, where names are read late: a function that is freed by then has no name.
SHORT_BETWEEN, SHORT_UNNAMED = 0.3, 0.15
BEFORE = {f"cut: {end}" for end in textdump.before_attaching("php")}
LONG = 2000  # samples of a program; SHORT: samples of each program in the default run
SHORT = 80
PATIENCE = 240 if os.environ.get("KILN_LONG") != "1" else 900  # seconds for these samples on a busy machine
PROGRAMS = os.environ.get("KILN_RUNTIME_PROGRAMS", "")
# {way to run PHP: parameters of php_stacks.options()}
WAYS = {"cli": {}, "opcache": {"opcache": True}, "tracing": {"jit": "tracing"}, "function": {"jit": "function"},
        "fpm": {}, "fpm opcache": {"opcache": True}, "fpm tracing": {"jit": "tracing"}}


def is_matrix():
    return os.environ.get("KILN_MATRIX") == "1"


def roots(wanted):
    """{version: root directory} of the versions that are available."""
    found, versions = {}, wanted or php_stacks.VERSIONS
    # The oldest version, then the others from the newest on.
    for version in versions[:1] + versions[:0:-1]:
        root, why = php_stacks.root_of(version)
        if not root:
            print(f"skipped: PHP {version}: {why}")
            continue
        found[version] = root
        if not wanted and not is_matrix() and version != versions[0]:
            break
    return dict(sorted(found.items()))


def start(version, root, way, **more):
    php = php_stacks.options(version, **WAYS[way])
    made = php_fpm.Busy if way.startswith("fpm") else php_stacks.Program
    return made(version, root, php=php, **more)


def ways(version):
    if is_matrix():
        return [way for way in WAYS if version >= "8" or "jit" not in WAYS[way]]
    return ["cli", "fpm opcache"] if version < "8" else ["cli", "tracing", "fpm"]


def frames_of(sample):
    return [(kind, name, file, line) for (kind, name), (file, line) in zip(sample.frames, sample.places)]


def is_long():
    return os.environ.get("KILN_LONG") == "1"


def judge(name, samples, known, compiled=False, complete=COMPLETE):
    """Prints how many samples of a program are right; [problem]. Samples from before the agent attached to PHP are marked in
    their stacks and not counted."""
    why = collections.Counter()
    for s in samples:
        # In compiled code an internal function may have no native frame, so natives are not checked there.
        why[php_stacks.judge(frames_of(s), known, compiled, natives=not compiled)] += s.value
    total = sum(why.values())
    before, between = sum(why.pop(reason, 0) for reason in BEFORE), why.pop("short", 0) + why.pop("around", 0)
    unnamed = 0 if is_long() else why.pop("unnamed", 0)
    right = why.pop("whole", 0)
    shown = right + sum(why.values())
    print(f"{name:20} {total:6} samples, {before:4} before attaching, {between:3} on the way, {unnamed:2} freed, "
          f"{right / max(shown, 1):8.2%} complete", flush=True)
    for reason, n in why.most_common(5):
        print(f"    {n:4} {reason}")
    problems = []
    if not right:
        problems.append(f"{name}: none of {total} samples is complete")
    if shown - right > max((1 - complete) * shown, 1):
        problems.append(f"{name}: {right / shown:.2%} of the samples are complete")
    if between > max((BETWEEN if is_long() else SHORT_BETWEEN) * total, 6):
        problems.append(f"{name}: {between} of {total} samples show no work")
    if unnamed > max(SHORT_UNNAMED * total, 4):
        problems.append(f"{name}: {unnamed} of {total} samples lack a name")
    return problems


def wait_for_samples(a, programs, least, mark="Instrumentation: php"):
    """Waits until each of PROGRAMS (lists of pids) has LEAST samples that contain MARK, or for PATIENCE seconds, and stops
    agent A; its output. Raises RuntimeError when the agent fails."""
    deadline, seen, rest = time.monotonic() + PATIENCE, collections.Counter(), ""
    with open(a.out_path, encoding="utf-8", errors="replace") as out:
        while time.monotonic() < deadline and a.process.poll() is None:
            *whole, rest = (rest + out.read()).split("New Sample")
            for sample in whole:
                pid = re.search(r"process\.pid: (\d+)", sample)
                if pid and mark in sample:
                    seen[int(pid.group(1))] += sum(map(int, re.findall(r"^  Values: \[(\d+)", sample, re.M)))
            if all(sum(seen[pid] for pid in pids) >= least for pids in programs):
                break
            time.sleep(0.5)
    status = a.stop()
    if status:
        raise RuntimeError(f"agent: exit {status}: {a.stderr()[-500:]}")
    return a.stdout()


def wait_until(condition, what):
    """Waits until CONDITION() is true; raises RuntimeError after PATIENCE seconds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited in vain for {what}")
        time.sleep(0.2)


def run_group(group):
    """Runs the programs of GROUP, {name: (version, root, way)}, at the same time; [problem]."""
    problems = []
    with contextlib.ExitStack() as stack:
        programs = {name: stack.enter_context(start(*how)) for name, how in group.items()}
        pids = {name: p.pids() for name, p in programs.items()}
        every = sum(pids.values(), [])
        with agent.Agent(*sum((["--pid", pid] for pid in every), []), config=php_stacks.config()) as a:
            text = wait_for_samples(a, list(pids.values()), LONG * 1.15 if is_long() else SHORT)
        problems += [f"{name}: {p.failed}" for name, p in programs.items() if getattr(p, "failed", None)]
        known = {name: p.known for name, p in programs.items()}
    samples = textdump.parse(text.splitlines())
    for name, (_, _, way) in group.items():
        problems += judge(name, [s for s in samples if s.pid in pids[name]], known[name], "jit" in WAYS[way])
    return problems


def chains(found):
    every = {f"{version} {way}": (version, root, way) for version, root in found.items() for way in ways(version)}
    if is_long():
        return sum((run_group({name: how}) for name, how in every.items()), [])
    names = list(every)
    groups = [names[i:i + 5] for i in range(0, len(names), 5)]
    return sum((run_group({name: every[name] for name in group}) for group in groups), [])


def special(found):
    """Special cases: opcache is emptied while workers run, a program starts later, and one only claims to be PHP."""
    version, root = list(found.items())[-1]
    problems = []
    with contextlib.ExitStack() as stack:
        fpm = stack.enter_context(start(version, root, "fpm opcache", reset=True, workers=3))
        with agent.Agent("--process-filter", "^php", config=php_stacks.config()) as a:
            wait_until(lambda: a.stderr().count("\n"), "a word of the agent")
            late = stack.enter_context(start(version, root, "cli"))
            forged = stack.enter_context(Forged())
            pids = {"emptied": fpm.pids(), "late": late.pids(), "forged": [forged.pid]}
            wait_until(lambda: fpm.resets or fpm.failed, "opcache to be emptied")
            samples = textdump.parse(wait_for_samples(a, list(pids.values()), SHORT).splitlines())
    mine = {name: [s for s in samples if s.pid in pids[name]] for name in pids}
    problems += judge("emptied", mine["emptied"], fpm.known, complete=SPECIAL)
    problems += judge("late", mine["late"], late.known, complete=SPECIAL)
    problems += judge_forged(mine["forged"])
    print(f"{fpm.done} requests, emptied {fpm.resets} times")
    if fpm.failed or not fpm.resets:
        problems.append(f"emptied {fpm.resets} times: {fpm.failed}")
    return problems + toggle(version, root) + unknown()


class Forged:
    def __init__(self):
        self.process = subprocess.Popen([os.path.join(PROGRAMS, "php-forged")], stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()
        self.pid = self.process.pid

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
    names = collections.Counter(name for s in samples for kind, name in s.frames if kind == "php")
    print(f"{'forged':20} {sum(s.value for s in samples):6} samples: {dict(said)}, {dict(names.most_common(4))}")
    if not samples or not all(any(kind == "native" for kind, _ in s.frames) for s in samples):
        problems.append("forged: samples without native frames")
    if any(len(s.frames) > 3 * 1024 for s in samples):
        problems.append("forged: a stack of more than 3072 frames")
    if "forged" not in names:
        problems.append("forged: no frame where the structures are right")
    if len(set(said) - {reason[5:] for reason in BEFORE}) < 2:
        problems.append(f"forged: only {dict(said)} is said of the forged structures")
    return problems


def toggle(version, root):
    """With the tracer off there are only native frames, and no marker of missing PHP frames."""
    with start(version, root, "cli") as p:
        config = php_stacks.config(more='    tracers: "native,kernel"')
        with agent.Agent("--pid", p.pid, config=config) as a:
            samples = textdump.parse(wait_for_samples(a, [[p.pid]], SHORT, mark="Instrumentation: native").splitlines())
    kinds = {kind for s in samples for kind, _ in s.frames} - {"kernel"}
    incomplete = {name for s in samples for kind, name in s.frames if kind == "abort-marker"}
    if "native" not in kinds or kinds - {"native", "abort-marker"} or any("php" in name for name in incomplete):
        return [f"tracer off: {kinds}, {incomplete}"]
    return []


def unknown():
    """A program of an unknown version gets native frames, and log and metrics report it as unsupported."""
    program, port = os.path.join(PROGRAMS, "php-newer"), ports.free_port()
    refused = 'kiln_runtime_attach_total{result="unsupported"}'

    def count():
        try:
            return agent.metrics(f"http://127.0.0.1:{port}/metrics").get(refused, 0)
        except OSError:
            return 0
    with subprocess.Popen([program], stdout=subprocess.PIPE, text=True) as p:
        p.stdout.readline()
        try:
            with agent.Agent("--pid", p.pid, config=php_stacks.config(port=port)) as a:
                wait_until(count, "php-newer to be refused")
                counted = count()
                samples = textdump.parse(
                    wait_for_samples(a, [[p.pid]], SHORT, mark="Instrumentation: native").splitlines())
                said = a.stderr()
        finally:
            p.kill()
    problems = []
    total = sum(s.value for s in samples)
    whole = sum(s.value for s in samples if {kind for kind, _ in s.frames} <= {"native", "kernel"})
    # The first samples, before the unwind table is built, are marked as incomplete.
    if not whole or whole < 0.9 * total - 4:
        problems.append(f"unknown: {whole} of {total} samples are whole")
    if not re.search(r"php-newer: only its native frames are shown: PHP 9\.9\.9: want 7\.4, .* or 8\.\d", said):
        problems.append(f"unknown: {said[-500:]}")
    if counted != 1:
        problems.append(f"unknown: {counted} times counted as unsupported")
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
