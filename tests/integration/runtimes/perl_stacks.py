# SPDX-License-Identifier: Apache-2.0
"""Perl's interpreters, and the check of samples against the call chains of perl_work.pl."""
import collections
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time

from kiln import textdump

import python_stacks
from python_stacks import BETWEEN, HERE, ROOTS, config  # noqa: F401

WORK = os.path.join(HERE, "perl_work.pl")
LOOP = "Perl_runops_standard"
VERSIONS = ["5.32", "here", "5.40", "5.42", "5.44"]
COMPLETE = 0.995
# The largest share of samples that may be taken on the way to a chain's leaf or back (their frames are checked, too): 1 to
# 2 % on an idle machine, 4 % when other programs take 40 % of its CPU time.
MOST_BETWEEN = 0.08
BEFORE = {f"cut: {end}" for end in textdump.before_attaching("perl")}
PATIENCE = 240  # seconds; an idle machine needs ten


def interpreter(version):
    """(a root directory with Perl VERSION, or None for this machine's Perl; why it is not available, or None)."""
    if version == "here":
        return None, None if shutil.which("perl") else "no perl"
    script = os.path.join(HERE, "..", "..", "..", "hack", "lib", "perl.sh")
    done = subprocess.run([script, version], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode == 77:
        return None, done.stderr.strip()
    if done.returncode:
        raise RuntimeError(f"{script}: {done.stderr[-500:]}")
    return done.stdout.strip(), None


class Program(python_stacks.Program):
    """Runs perl_work.pl with PROGRAM, in the root directory ROOT when one is given."""

    def __init__(self, *arguments, root=None, program="/usr/bin/perl"):
        command, inside = [program, WORK, *arguments], None
        if root:
            inside = os.path.join(root, "tmp", f"kiln-{os.getpid()}-{id(self)}")
            os.mkdir(inside)
            for name in ("perl_work.pl", "perl_work_file.pl"):
                shutil.copy(os.path.join(HERE, name), inside)
            script = os.path.join("/", os.path.relpath(inside, root), "perl_work.pl")
            command = ["chroot", root, program, script, *arguments]
        self.inside, self.lines = inside, []
        self.start(command, {"LC_ALL": "C"})
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append(json.loads(line))

    def again(self):
        """Whether the program has started again, by exec."""
        return any("chains" in line for line in self.lines)

    def children(self):
        """The pids of the processes that the program has created since its start."""
        return [line["pid"] for line in self.lines if "chains" not in line]

    def close(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.reader.join()
        super().close()


def frames(sample):
    """The frames, leaf first: [name, file, line] for a Perl frame, "|" for a native frame of the op loop."""
    out = []
    for (kind, name), place in zip(sample.frames, sample.places):
        if kind == "perl":
            out.append([name, *place])
        elif kind == "native" and name == LOOP:
            out.append("|")
    return out


def matches(found, chain):
    """Whether FOUND are the frames of CHAIN. "*" stands for any frames."""
    if "*" in chain:
        at = chain.index("*")
        after = len(chain) - at - 1
        return matches(found[:at], chain[:at]) and matches(found[len(found) - after:], chain[at + 1:])
    if len(found) != len(chain):
        return False
    for have, want in zip(found, chain):
        if isinstance(want, str) or isinstance(have, str):
            if have != want:
                return False
        elif have[0] != want[0] or have[2] not in want[1] or have[1] != want[2]:
            return False
    return True


def on_the_way(found, chain):
    """Whether the thread is on its way to CHAIN's leaf or back: the callers are those of the chain, each at its line; the
    innermost frame may be at any line, since its sub may be elsewhere, or its file or string is still being compiled."""
    found, chain = found[::-1], chain[::-1]
    if not 0 < len(found) <= len(chain):
        return False
    for i, (have, want) in enumerate(zip(found, chain)):
        newest = all(isinstance(f, str) for f in found[i + 1:])
        if isinstance(want, str) or isinstance(have, str):
            if have != want:
                return False
        elif have[0] != want[0]:
            return False
        elif (have[1] != want[2] or have[2] not in want[1]) and not newest:
            return False
    return True


def wrong(sample, said):
    """Why SAMPLE matches none of the chains of the program; None when it matches one."""
    kinds = [kind for kind, _ in sample.frames]
    if "abort-marker" in kinds:
        return "cut: " + sample.frames[kinds.index("abort-marker")][1]
    if not sample.user or sample.user[-1] not in ROOTS and not re.search(r"\+0x[0-9a-f]+$", sample.user[-1]):
        return "no root: " + (sample.user[-1] if sample.user else "no frames")
    found = frames(sample)
    if not [f for f in found if f != "|"]:
        return "no frames of Perl"
    if any(matches(found, chain) for chain in said["chains"]):
        return None
    if any(on_the_way(found, chain) for chain in said["chains"]):
        return f"{BETWEEN}: {found[0]}"
    return "other frames: " + " < ".join(f if f == "|" else f"{f[0]}:{f[2]}" for f in found[:8])


def count(name, samples, why_not, before, complete):
    """Prints how many samples of a program are right; [problem]. WHY_NOT(sample): why it is wrong, or None. BEFORE: reasons of
    samples from before the agent knew the process, which are not counted. Three wrong samples are always allowed."""
    why = collections.Counter()
    total = shown = 0
    for s in samples:
        reason = why_not(s)
        if os.environ.get("KILN_SHOW") and reason and reason not in before and reason not in why:
            print(reason, *(f"{kind} {frame}:{line}" for (kind, frame), (_, line) in zip(s.frames, s.places)), sep="\n    ")
        total += s.value
        if reason not in before:
            shown += s.value
            why[reason] += s.value
    right = why.pop(None, 0)
    between = sum(n for reason, n in why.items() if reason.startswith(BETWEEN))
    shown -= between
    print(f"{name:18} {total:6} samples, {total - shown - between:4} before attaching, {between:3} on the way, "
          f"{right / max(shown, 1):8.2%} complete", flush=True)
    for reason, n in why.most_common(5):
        print(f"    {n:4} {reason}")
    if not right:
        return [f"{name}: no sample is complete"]
    if shown - right > max((1 - complete) * shown, 3):
        return [f"{name}: {right / shown:.2%} of the samples are complete"]
    if between > max(MOST_BETWEEN * shown, 4):
        return [f"{name}: {between} of {shown} samples show no work"]
    return []


def judge(name, samples, said, complete=COMPLETE):
    return count(name, samples, lambda sample: wrong(sample, said), BEFORE, complete)


class Output:
    """Reads the output of a running agent and counts its samples."""
    LANGUAGE = "perl"

    def __init__(self, a):
        self.agent, self.rest = a, ""
        self.samples = collections.Counter()  # {pid: samples with frames of the language}
        self.said = collections.defaultdict(set)  # {pid: markers of cut stacks}
        self.all = collections.Counter()
        self.file = open(a.out_path, encoding="utf-8", errors="replace")  # noqa: SIM115

    def read(self):
        *whole, self.rest = (self.rest + self.file.read()).split("New Sample")
        for sample in whole:
            pid = re.search(r"process\.pid: (\d+)", sample)
            if not pid:
                continue
            pid, n = int(pid[1]), sum(map(int, re.findall(r"^  Values: \[(\d+)", sample, re.M)))
            self.all[pid] += n
            if f"Instrumentation: {self.LANGUAGE}" in sample:
                self.samples[pid] += n
            self.said[pid].update(re.findall(rf"abort-marker, Function: (\[{self.LANGUAGE}: .*\])", sample))


def run_until(a, enough, kind=Output):
    """Waits until ENOUGH(Output) holds and stops the agent; its whole output. Raises RuntimeError after PATIENCE seconds."""
    deadline, output = time.monotonic() + PATIENCE, kind(a)
    with output.file:
        while not enough(output):
            if a.process.poll() is not None:
                raise RuntimeError(f"the agent ended: {a.stderr()[-500:]}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"after {PATIENCE} s: {dict(output.samples)} samples, {dict(output.said)}")
            time.sleep(0.5)
            output.read()
    status = a.stop()
    if status:
        raise RuntimeError(f"agent: exit {status}: {a.stderr()[-500:]}")
    return a.stdout()


def have(least, pids):
    """A condition for run_until(): each of PIDS has LEAST samples with frames of the language."""
    return lambda output: all(output.samples[pid] >= least for pid in pids)
