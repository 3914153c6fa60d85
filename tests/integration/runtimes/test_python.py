#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Python's interpreters of this machine under the agent: what a sample shows is what the program does.
usage: test_python.py [chains|special|3.MINOR]   (exit 77: no interpreter)"""
import collections
import contextlib
import os
import re
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from kiln import agent, textdump  # noqa: E402
import perl_stacks  # noqa: E402
import python_stacks  # noqa: E402

COMPLETE = 0.99
LONG = os.environ.get("KILN_LONG") == "1"
# The largest share of samples that may be taken on the way to a chain's leaf or back (their frames are checked, too): 1 to
# 2 % on an idle machine, 4 % when other programs take 40 % of its CPU time.
BETWEEN = 0.08
SPECIAL = 0.95  # smallest share of complete samples of processes that start, fork and load
NOT_READ = "cut: [python: not read yet]"
BEFORE = {f"cut: {end}" for end in textdump.before_attaching("python")}
PORT = 13900 + os.getpid() % 90
PROGRAMS = os.environ.get("KILN_RUNTIME_PROGRAMS", "")
WORK = os.path.join(python_stacks.HERE, "python_work.py")


def judge(name, samples, said, least=40, complete=COMPLETE):
    """Prints how many samples of a program are right; [problem]. Samples from before the agent attached to the interpreter are
    marked in their stacks and not counted."""
    why = collections.Counter()
    total = shown = 0
    for s in samples:
        reason = python_stacks.wrong(s, said)
        total += s.value
        if reason not in BEFORE:
            shown += s.value
            why[reason] += s.value
    right = why.pop(None, 0)
    between = sum(n for reason, n in why.items() if reason.startswith(python_stacks.BETWEEN))
    shown -= between
    print(f"{name:12} {total:6} samples, {total - shown - between:4} before attaching, {between:3} on the way, "
          f"{right / max(shown, 1):8.2%} complete", flush=True)
    for reason, n in why.most_common(3):
        print(f"    {n:4} {reason}")
    if shown < least:
        return [f"{name}: {shown} samples are too few"]
    if shown - right > max((1 - complete) * shown, 1):
        return [f"{name}: {right / shown:.2%} of the samples are complete"]
    if between > max(BETWEEN * shown, 4):
        return [f"{name}: {between} of {shown} samples show no work"]
    return []


class Output(perl_stacks.Output):
    LANGUAGE = "cpython"


def run_until(a, enough):
    return perl_stacks.run_until(a, enough, Output)


def run_until_seen(a, pids, least, seconds=0):
    """Runs agent A for at least SECONDS, and until each of PIDS has LEAST samples with Python frames; its output."""
    over = time.monotonic() + seconds
    return run_until(a, lambda output: perl_stacks.have(least, pids)(output) and time.monotonic() > over)


def chains():
    """Tests Debian's, the oldest and the newest interpreter (with KILN_MATRIX=1 every one) at the same time; with KILN_LONG=1
    one after another."""
    found = python_stacks.interpreters()
    if os.environ.get("KILN_MATRIX") != "1":
        releases = [version for version in found if version != "debian"]
        found = {version: found[version] for version in found if version in ("debian", *releases[:1], *releases[-1:])}
    groups = [[version] for version in found] if LONG else [list(found)]
    return sum((chains_of({version: found[version] for version in group}) for group in groups), [])


def chains_of(found, *arguments, root=None):
    problems = []
    with contextlib.ExitStack() as stack:
        programs = {version: stack.enter_context(python_stacks.Program(python, *arguments, root=root))
                    for version, python in found.items()}
        pids = sum((["--pid", p.pid] for p in programs.values()), [])
        with agent.Agent(*pids, config=python_stacks.config()) as a:
            text = run_until_seen(a, [p.pid for p in programs.values()], 1000 if LONG else 200)
    samples = textdump.parse(text.splitlines())
    for version, program in programs.items():
        problems += judge(version, [s for s in samples if s.pid == program.pid], program.said)
    return problems


def next_release(version):
    """Tests an interpreter of Debian's next release, which is not installed on this machine."""
    root, why = python_stacks.next_release()
    if not root:
        print(f"SKIPPED: CPython {version}: {why}")
        return None
    python = f"/usr/bin/python{version}"
    return chains_of({version: python}, root=root) + chains_of({f"{version} threads": python}, "--thread", root=root)


class Short(threading.Thread):
    """A thread that starts interpreters one after another and kills them in the middle of their work."""

    def __init__(self, python):
        super().__init__(daemon=True)
        self.python, self.over, self.n = python, threading.Event(), 0
        self.start()

    def run(self):
        while not self.over.is_set():
            with subprocess.Popen([self.python, WORK, "--ms", "300", "recursion"], stdout=subprocess.DEVNULL) as p:
                time.sleep(0.25)
                p.kill()
            self.n += 1

    def close(self):
        self.over.set()
        self.join()


def special():
    """Special cases: threads, workers, late loading, exec, processes that die, and a program that only claims to be Python."""
    found = python_stacks.interpreters()
    newest, older = found.get("3.13.0") or found["debian"], found.get("3.9.18") or found["debian"]
    library = next((p for p in [os.path.expanduser("~/.pyenv/versions/3.11.7/lib/libpython3.11.so.1.0"),
                                "/usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0"] if os.path.exists(p)), None)
    brief = found.get("3.12.1") or found["debian"]
    # Select the tested interpreters only: this test runs in Python, too.
    names = {re.escape(os.path.basename(os.path.realpath(p))) for p in (newest, older, brief)}
    problems, programs = [], {}
    with contextlib.ExitStack() as stack:
        def start(name, command, **environment):
            programs[name] = stack.enter_context(python_stacks.Program(*command, env=environment))

        start("threads", [newest, "--thread"])
        venv = stack.enter_context(tempfile.TemporaryDirectory(prefix="kiln-test-"))
        subprocess.run([newest, "-m", "venv", "--without-pip", venv], check=True)
        with agent.Agent("--process-filter", f"^(python-.*|{'|'.join(sorted(names))})$",
                         config=python_stacks.config()) as a:
            time.sleep(1)
            start("workers", [older, "--fork", "2", "recursion", "classes"])
            start("exec", [older, "--exec", newest, "recursion", "generators"])
            start("venv", [os.path.join(venv, "bin", "python3"), "generators", "classes"])
            start("again", [newest, "--again", "recursion", "classes"])
            start("respawn", [older, "--respawn", "recursion", "classes"])
            if library:
                home = os.path.dirname(os.path.dirname(library)) if "pyenv" in library else "/usr"
                start("late", [os.path.join(PROGRAMS, "python-embed"), library, WORK, "--embedded", "by_sorted"],
                      PYTHONHOME=home)
                start("unload", [os.path.join(PROGRAMS, "python-unload"), library, "1"], PYTHONHOME=home)
            start("forged", [os.path.join(PROGRAMS, "python-forged")])
            short = Short(brief)
            stack.callback(short.close)
            pids = sum((p.said.get("pids", []) for name, p in programs.items() if name != "respawn"), [])
            samples = textdump.parse(run_until_seen(a, [*pids, programs["forged"].pid], 20, seconds=8).splitlines())
        after = programs["exec"].rest()
        programs["respawn"].said["pids"] = [said["pid"] for said in programs["respawn"].rest()]
        unloaded = [said["unloaded"] for said in programs["unload"].rest()] if library else []
    for name, program in programs.items():
        said = program.said
        mine = [s for s in samples if s.pid in said.get("pids", [said["pid"]])]
        if name == "forged":
            problems += judge_forged(mine)
            continue
        if name == "unload":
            problems += judge_unload(mine, unloaded)
            continue
        if name == "exec":
            said = {**said, "chains": said["chains"] + sum((s["chains"] for s in after), [])}
            mine = [s for s in mine if not starting(s)]
        if name in ("again", "venv"):
            mine = [s for s in mine if not starting(s)]
        if name in ("workers", "respawn"):
            mine = [s for s in mine if not forking(s)]
        if name == "late":
            mine = [s for s in mine if python_stacks.python_frames(s) and not starting(s)]
        problems += judge(name, mine, said, least=15, complete=SPECIAL)
    if not any(s.pid == programs["exec"].pid and s.exe != os.path.basename(os.path.realpath(older)) and
               python_stacks.python_frames(s) for s in samples):
        problems.append("exec: no Python's frames of the program that it became")
    print(f"{short.n} short processes")
    return problems + toggle(newest) + last_moments(brief) + (unknown(found["debian"]) if "debian" in found else [])


def starting(sample):
    """Whether the program has not reached run() yet: the interpreter imports modules."""
    frames = python_stacks.python_frames(sample)
    return not any(name == "run" for name, _, _ in frames)


def forking(sample):
    """Whether a complete stack has not reached run() yet: the program imports modules, or a worker runs their handlers after a
    fork."""
    frames = python_stacks.python_frames(sample)
    return frames and frames[-1][0] == "<module>" and starting(sample)


def judge_unload(samples, unloaded):
    """Python is loaded and unloaded repeatedly: samples show only functions that run, and none while it is unloaded."""
    problems, seen = [], collections.Counter()
    if not any(unloaded):
        problems.append("unload: Python was never unloaded")
    for s in samples:
        names = {name for name, _, _ in python_stacks.python_frames(s)}
        where = next((name for name in ("first", "second", "without") if name in s.user), "start")
        number = {"first": "1", "second": "2"}.get(where)
        if {f"leaf_{number}", f"caller_{number}"} <= names:
            seen[where] += s.value
        if any(re.fullmatch(r"(leaf|caller)_\d", name) and name[-1] != number for name in names):
            problems.append(f"unload: {names} while {where} runs")
        if where == "without":
            seen[where] += s.value
            if names or any(kind == "abort-marker" and "python" in name for kind, name in s.frames):
                problems.append(f"unload: {s.frames[:3]} in a stack without Python")
    print(f"{'unload':12} {sum(s.value for s in samples):6} samples: {dict(seen)}, unloaded {unloaded}")
    for where in ("first", "second", "without"):
        if seen[where] < 10:
            problems.append(f"unload: {seen[where]} samples of {where}")
    return problems[:5]


def judge_forged(samples):
    """The forged program's stacks are marked as cut, have native frames, and are not deeper than allowed."""
    problems = []
    said = collections.Counter(name for s in samples for kind, name in s.frames if kind == "abort-marker")
    print(f"{'forged':22} {sum(s.value for s in samples):6} samples: {dict(said)}")
    if not samples or not all(any(kind == "native" for kind, _ in s.frames) for s in samples):
        problems.append("forged: samples without native frames")
    if any(len(s.frames) > 3 * 1024 for s in samples):
        problems.append("forged: a stack of more than 3072 frames")
    if len(set(said) - {NOT_READ[5:]}) < 2:
        problems.append(f"forged: only {dict(said)} is said of the forged structures")
    return problems


def seen(python, more, enough):
    """{(type, name)} of all frames of a program with one chain, except kernel frames."""
    with python_stacks.Program(python, "by_sorted") as p:
        with agent.Agent("--pid", p.pid, config=python_stacks.config(more=more)) as a:
            text = run_until(a, lambda output: enough(output, p.pid))
    complete = [s for s in textdump.parse(text.splitlines()) if NOT_READ[5:] not in [name for _, name in s.frames]]
    return {frame for s in complete for frame in s.frames if frame[0] != "kernel"}


def toggle(python):
    """With the tracer off there are only native frames, and no marker of missing Python frames. With native_frames off only
    the frames of the interpreter's own file are left out."""
    off = seen(python, '    tracers: "native,kernel"', lambda output, pid: output.all[pid] > 50)
    hidden = seen(python, "    python: {native_frames: false}", lambda output, pid: output.samples[pid] > 50)
    print(f"tracer off: {sorted(off)[:3]}; without native frames: {sorted(hidden)}")
    problems = []
    if not off or {kind for kind, _ in off} != {"native"}:
        problems.append(f"tracer off: {sorted(off)}")
    natives = {name for kind, name in hidden if kind == "native"}
    if ("cpython", "by_sorted") not in hidden or "_start" not in natives:
        problems.append(f"native_frames off: {sorted(hidden)}")
    if any("Py" in name for name in natives):
        problems.append(f"native_frames off: {sorted(natives)} are shown")
    return problems


def last_moments(python):
    """Short-lived programs, of which each runs a function of a unique name for 8 ms and exits: its name must be shown."""
    work = "import os, time\ndef spin(s):\n e = time.perf_counter() + s\n while time.perf_counter() < e: pass\nspin(0.25)\n"
    last = "def last_moment():\n spin(0.008)\n os._exit(0)\nlast_moment()\n"
    name = re.escape(os.path.basename(os.path.realpath(python)))
    with agent.Agent("--process-filter", f"^{name}$", config=python_stacks.config(hz=199)) as a:
        time.sleep(1)
        for i in range(40):
            subprocess.run([python, "-ISc", work + last.replace("last_moment", f"last_moment_{i}")], check=True)
        time.sleep(0.5)
        if a.stop():
            raise RuntimeError(a.stderr()[-500:])
        samples = a.samples()
    named = sum(s.value for s in samples if any(name.startswith("last_moment_") for _, name in s.frames))
    unnamed = sum(s.value for s in samples if any("no name" in name for _, name in s.frames))
    print(f"last moments: {named} samples have names, {unnamed} have not")
    # If the agent did not read names at once, none would be shown. On a busy machine it is too late for a quarter of them.
    if named < 20 or unnamed > named / 2:
        return [f"last moments: {named} samples have names, {unnamed} have not"]
    return []


def unknown(python):
    """An interpreter that claims an unknown version gets complete stacks of native frames, and log and metrics report it as
    unsupported."""
    with open(python, "rb") as f:
        file = f.read()
    version = int(subprocess.check_output([python, "-c", "import sys; print(sys.hexversion)"]))
    with tempfile.TemporaryDirectory(prefix="kiln-test-") as directory:
        newer = os.path.join(directory, "python3.99")
        with open(newer, "wb") as f:
            f.write(file.replace(version.to_bytes(4, "little"), bytes([0xf0, 0, 99, 3])))
        os.chmod(newer, 0o755)
        with python_stacks.Program(newer, "recursion", env={"PYTHONHOME": "/usr"}) as p:
            with agent.Agent("--pid", p.pid, config=python_stacks.config(port=PORT)) as a:
                a.wait_ready(perl_stacks.PATIENCE, f"http://127.0.0.1:{PORT}/readyz")
                counted = {}

                def enough(output):
                    counted.update(agent.metrics(f"http://127.0.0.1:{PORT}/metrics"))
                    return output.all[p.pid] > 200 and "3.99" in a.stderr()

                samples, said = textdump.parse(run_until(a, enough).splitlines()), a.stderr()
    total = sum(s.value for s in samples)
    whole = sum(s.value for s in samples if {kind for kind, _ in s.frames} <= {"native", "kernel"} and
                s.user[-1] in python_stacks.ROOTS)
    print(f"{'unknown':12} {total:6} samples, {whole / max(total, 1):8.2%} of native frames from the root on")
    problems = []
    if total < 40 or whole < COMPLETE * total - 4:  # the first samples are taken before the unwind tables are built
        problems.append(f"unknown: {whole} of {total} samples are whole: {samples[-1].frames if samples else []}")
    if not re.search(r"python3\.99: only its native frames are shown: CPython 3\.99: want 3\.6 to 3\.\d+", said):
        problems.append(f"unknown: {said[-500:]}")
    if counted['kiln_runtime_attach_total{result="unsupported"}'] != 1:
        problems.append("unknown: not counted as unsupported")
    return problems


def main():
    what = sys.argv[1] if len(sys.argv) > 1 else "chains"
    if what.startswith("3."):
        problems = next_release(what)
    else:
        problems = {"chains": chains, "special": special}[what]() if python_stacks.interpreters() else None
    if problems is None:
        return 77
    for problem in problems:
        print(f"FAILED: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
