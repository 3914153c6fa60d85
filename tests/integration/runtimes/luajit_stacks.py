# SPDX-License-Identifier: Apache-2.0
"""LuaJIT's interpreters, and the check of samples against the call chains of luajit_work.lua."""
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
    """(a root directory with the LuaJIT of Debian release VERSION, None), or (None, why it is not available)."""
    script = os.path.join(HERE, "..", "..", "..", "hack", "lib", "luajit.sh")
    done = subprocess.run([script, version], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode == 77:
        return None, done.stderr.strip()
    if done.returncode:
        raise RuntimeError(f"{script}: {done.stderr[-500:]}")
    return done.stdout.strip(), None


class Program(python_stacks.Program):
    """Runs luajit_work.lua with the LuaJIT in the root directory ROOT. ARGUMENTS: chains; OPTIONS: of luajit."""

    def __init__(self, root, *arguments, options=()):
        self.inside = tempfile.mkdtemp(dir=os.path.join(root, "tmp"))
        script = os.path.join("/", os.path.relpath(shutil.copy(WORK, self.inside), root))
        # The script gets its pid ($$) as an argument, since Lua cannot find it out.
        start = f'exec chroot {root} /usr/bin/luajit {" ".join(options)} {script} $$ {" ".join(arguments)}'
        self.start(["sh", "-c", start], {"LC_ALL": "C"})


def frames(sample):
    """The frames, leaf first: [name, file, line] for a Lua function, the name for a C function, "|" for native frames between
    them."""
    out = []
    for (kind, name), (file, line) in zip(sample.frames, sample.places):
        if kind == "luajit":
            out.append([name, file, line] if file else name)
        elif kind == "native" and out and out[-1] != "|":
            out.append("|")
    return out[:-1] if out and out[-1] == "|" else out


def is_frame(have, want):
    """Whether the frame HAVE matches WANT. C functions have only a name."""
    if isinstance(want, str) or isinstance(have, str):
        return have == want
    return have[0] == want[0] and have[2] in want[1] and have[1] == want[2]


def without_native(found):
    return [f for f in found if f != "|"]


def matches(found, chain):
    """Whether FOUND are the frames of CHAIN. A leaf "*" stands for at most three C functions and native frames."""
    if chain[0] == ["*"]:
        return any(all(isinstance(f, str) for f in found[:n]) and matches(found[n:], chain[1:]) for n in range(4))
    return len(found) == len(chain) and all(map(is_frame, found, chain))


def on_the_way(found, chain):
    """Whether the thread is on its way to CHAIN's leaf or back: the callers are those of the chain, each at its line, and the
    innermost function is at any line, or is a C function."""
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
    """Why SAMPLE matches none of the chains of the program; None when it matches one."""
    kinds = [kind for kind, _ in sample.frames]
    if "abort-marker" in kinds:
        return "cut: " + sample.frames[kinds.index("abort-marker")][1]
    if not sample.user or sample.user[-1] not in ROOTS and not re.search(r"\+0x[0-9a-f]+$", sample.user[-1]):
        return "no root: " + (sample.user[-1] if sample.user else "no frames")
    found, chains = frames(sample), said["chains"]
    if not found:
        return "no frames of Lua"
    if said["jit"]:  # compiled traces hide native frames, but not always: compare without them
        found, chains = without_native(found), [without_native(chain) for chain in chains]
    if any(matches(found, chain) for chain in chains):
        return None
    # The leaf calls a C function that returns the time.
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
    """A condition for run_until(): each of PIDS has LEAST samples with LuaJIT frames."""
    return perl_stacks.have(least, pids)
