# SPDX-License-Identifier: Apache-2.0
"""LuaJIT's interpreters, and whether a sample shows what luajit_work.lua is written to do."""
import os
import re
import shutil
import subprocess
import tempfile

import perl_stacks
import python_stacks
from kiln import textdump
from perl_stacks import PATIENCE  # noqa: F401
from python_stacks import BETWEEN, HERE, ROOTS, config  # noqa: F401

WORK = os.path.join(HERE, "luajit_work.lua")
VERSIONS = ["bookworm", "trixie", "forky"]
COMPLETE = 0.995
BEFORE = {f"cut: {end}" for end in textdump.before_attaching("luajit")}


def interpreter(version):
    """(the root directory with the LuaJIT of Debian's VERSION; why it cannot be had)"""
    script = os.path.join(HERE, "..", "..", "..", "hack", "lib", "luajit.sh")
    done = subprocess.run([script, version], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode == 77:
        return None, done.stderr.strip()
    if done.returncode:
        raise RuntimeError(f"{script}: {done.stderr[-500:]}")
    return done.stdout.strip(), None


class Program(python_stacks.Program):
    """luajit_work.lua under the LuaJIT of a root directory, as chroot has it. ARGUMENTS: chains; OPTIONS: of luajit."""

    def __init__(self, root, *arguments, options=()):
        self.inside = tempfile.mkdtemp(dir=os.path.join(root, "tmp"))
        script = os.path.join("/", os.path.relpath(shutil.copy(WORK, self.inside), root))
        # Its own pid, which Lua cannot tell.
        start = f'exec chroot {root} /usr/bin/luajit {" ".join(options)} {script} $$ {" ".join(arguments)}'
        self.start(["sh", "-c", start], {"LC_ALL": "C"})


def frames(sample):
    """[name, file, line] of each function of Lua, leaf first, the name of each one of C, and "|" for the native frames
    between two."""
    out = []
    for (kind, name), (file, line) in zip(sample.frames, sample.places):
        if kind == "luajit":
            out.append([name, file, line] if file else name)
        elif kind == "native" and out and out[-1] != "|":
            out.append("|")
    return out[:-1] if out and out[-1] == "|" else out


def is_frame(have, want):
    """Is the frame HAVE the frame WANT? The names of C functions alone are told."""
    if isinstance(want, str) or isinstance(have, str):
        return have == want
    return have[0] == want[0] and have[2] in want[1] and have[1] == want[2]


def without_native(found):
    return [f for f in found if f != "|"]


def matches(found, chain):
    """Are FOUND the frames of CHAIN? "*" as its leaf stands for at most two C functions and native frames."""
    if chain[0] == ["*"]:
        return any(all(isinstance(f, str) for f in found[:n]) and matches(found[n:], chain[1:]) for n in range(4))
    return len(found) == len(chain) and all(map(is_frame, found, chain))


def on_the_way(found, chain):
    """Is the thread on its way to CHAIN's leaf or back? The callers are those of the chain, each at its line; the newest
    function is anywhere in it, or is one of C that is called meanwhile."""
    while found and isinstance(found[0], str):
        found = found[1:]
    found, chain = found[::-1], chain[::-1]
    if not 0 < len(found) <= len(chain):
        return False
    for i, (have, want) in enumerate(zip(found, chain)):
        if not is_frame(have, want) and (i < len(found) - 1 or isinstance(want, str) or want == ["*"] or have[1] != want[2]):
            return False
    return True


def wrong(sample, said):
    """Why SAMPLE is none of the chains that the program has; None when it is one."""
    kinds = [kind for kind, _ in sample.frames]
    if "abort-marker" in kinds:
        return "cut: " + sample.frames[kinds.index("abort-marker")][1]
    if not sample.user or sample.user[-1] not in ROOTS and not re.search(r"\+0x[0-9a-f]+$", sample.user[-1]):
        return "no root: " + (sample.user[-1] if sample.user else "no frames")
    found, chains = frames(sample), said["chains"]
    if not found:
        return "no frames of Lua"
    if said["jit"]:  # the frame of a trace hides the native one, and is not always there
        found, chains = without_native(found), [without_native(chain) for chain in chains]
    if any(matches(found, chain) for chain in chains):
        return None
    # The leaf asks the time by a function of C.
    if isinstance(found[0], str) and any(matches(found[i:], chain) for i in (1, 2) if found[i:] for chain in chains):
        return None
    if any(on_the_way(found, chain) for chain in chains):
        return f"{BETWEEN}: {found[0]}"
    return "other frames: " + " < ".join(f if isinstance(f, str) else f"{f[0]}:{f[2]}" for f in found[:8])


def judge(name, samples, said, complete=COMPLETE):
    return perl_stacks.count(name, samples, lambda sample: wrong(sample, said), BEFORE, complete)


class Output(perl_stacks.Output):
    LANGUAGE = "luajit"


def run_until(a, enough):
    return perl_stacks.run_until(a, enough, Output)


def have(least, pids):
    """Are there LEAST samples with LuaJIT's frames of each of PIDS?"""
    return perl_stacks.have(least, pids)
