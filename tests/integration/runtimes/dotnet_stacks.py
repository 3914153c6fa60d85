# SPDX-License-Identifier: Apache-2.0
""".NET's runtimes, and whether a sample shows what dotnet_work.cs is written to do."""
import hashlib
import os
import re
import shutil
import subprocess
import tempfile

from kiln import textdump

import perl_stacks
import python_stacks
from python_stacks import BETWEEN, HERE, ROOTS, config  # noqa: F401

VERSIONS = ["8", "8-single", "9", "10"]
COMPLETE = 0.995
BEFORE = {f"cut: {end}" for end in textdump.before_attaching("dotnet")}
SCRIPT = os.path.join(HERE, "..", "..", "..", "hack", "lib", "dotnet.sh")
# Without profiles of what is called: the compiler would put the bodies of lambda expressions where they are called.
SETTINGS = {"DOTNET_SYSTEM_GLOBALIZATION_INVARIANT": "1", "DOTNET_TieredPGO": "0"}
RUN = ["Shop.Work.Do", "Shop.Work.For", "Shop.Work.Main"]
STATIC = "<lambda>"  # of the table of chains

# Code that all reference types share has the parameter's name.
SHARED = {"Shop.Box<T>.Put", "Shop.Box<T>.Lid.Close<U>"}
ALONE = {"Shop.Box<int>.Put", "Shop.Box<Pair>.Put", "Shop.Box<int>.Lid.Close<long>"}

# Of the class that the compiler makes for an iterator, besides what was written.
ITERATES = {f"Each.System.{name}" for name in ("IDisposable.Dispose", "Collections.Generic.IEnumerable<long>.GetEnumerator",
                                               "Collections.Generic.IEnumerator<long>.get_Current")}

# Frames of the program, leaf first: a name, or a set of them; without "Shop.Work." or with "Shop.". "*": frames of the
# library and native ones, which are allowed nowhere else but at the leaf. Below that comes RUN, or the thread pool.
CHAINS = [
    ["Spin", "Once", *["Recurse"] * 21, STATIC],
    ["Tiny", "OnceTiny", "Small"], ["OnceTiny", "Small"], ["Small"],
    ["Spin", SHARED | ALONE, "Generic"],
    ["Spin", "Lambda.<lambda>", "Lambda"],
    ["Spin", "Each", "Iterator"], [ITERATES, "Iterator"],
    ["Spin", {"Shop.Plain.Of", "Shop.Reduced.Of"}, "Price", "Interface"],
    ["Price", "Interface"], ["Interface"],
    ["Spin", {"First", "Second"}, "*", "Multicast"],
    ["Spin", "Once", "Catch", "*", "Throw", "Throw", "Throw", "Throw", "Catch"],
    ["Throw", "Throw", "Throw", "Throw", "Catch"], ["Catch", "*", "Throw", "Throw", "Throw", "Throw", "Catch"],
    ["Spin", "Once", "Finally", "*", "Throw", "Throw", "Finally"],
    ["Throw", "Throw", "Finally"], ["Finally", "*", "Throw", "Throw", "Finally"],
    ["Spin", "Once", "Stack"],
    ["Spin", "Fill", "LargeFrame"],
    ["Spin", "Compare", "*", "Native"], ["Native"],
    ["Spin", "ByPrice", "*", "Library"], ["ByPrice", "*", "Library"], ["Library"],
    ["Spin", "Made", "Dynamic"], ["Dynamic"],
    ["Async"], ["TotalAsync", "*", "Async"], ["TotalAsync", "*", "TotalAsync", "Async"],  # up to where it waits first
    ["Spin", "Alloc"], ["Alloc"],
]
POOL = ["Spin", "Once", "TotalAsync"]


def runtime(version):
    """(the directory with .NET VERSION; why it cannot be had)"""
    done = subprocess.run([SCRIPT, version], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode == 77:
        return None, done.stderr.strip()
    if done.returncode:
        raise RuntimeError(f"{SCRIPT}: {done.stderr[-500:]}")
    return done.stdout.strip(), None


def compile_work():
    """(dotnet_work.cs as a program; why it cannot be had)"""
    source = os.path.join(HERE, "dotnet_work.cs")
    with open(source, "rb") as f:
        tag = hashlib.sha256(f.read()).hexdigest()[:12]
    path = os.path.join(os.path.expanduser(os.environ.get("KILN_CACHE", "~/.cache/kiln")), f"dotnet-work-{tag}.dll")
    if not os.path.exists(path):
        new = f"{path}.{os.getpid()}.dll"
        done = subprocess.run([SCRIPT, "compile", source, new], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              check=False)
        if done.returncode == 77:
            return None, done.stderr.strip()
        if done.returncode:
            raise RuntimeError(f"{SCRIPT}: {done.stderr[-500:]}")
        os.rename(new, path)
    return path, None


class Program(python_stacks.Program):
    """dotnet_work.cs under .NET VERSION, which is in ROOT. 8: a framework; 9: the program's own folder; others: one file
    with another program, which does all chains."""

    def __init__(self, version, root, work, *chains, env=None):
        self.inside = tempfile.mkdtemp(prefix="kiln-dotnet-")
        if version == "8":
            shutil.copy(work, os.path.join(self.inside, "work.dll"))
            with open(os.path.join(self.inside, "work.runtimeconfig.json"), "w", encoding="utf-8") as f:
                f.write('{"runtimeOptions": {"framework": {"name": "Microsoft.NETCore.App", "version": "8.0.4"}}}')
            command = [os.path.join(root, "dotnet"), "exec", os.path.join(self.inside, "work.dll")]
        elif version != "9":
            shutil.copy(work, os.path.join(self.inside, "work.dll"))
            env = {**(env or {}), "DOTNET_STARTUP_HOOKS": os.path.join(self.inside, "work.dll")}
            command = [os.path.join(root, "program")]
        else:
            for name in os.listdir(root):
                if name not in ("azmcp", "azmcp.dll"):
                    os.symlink(os.path.join(root, name), os.path.join(self.inside, name))
            shutil.copy(os.path.join(root, "azmcp"), self.inside)
            shutil.copy(work, os.path.join(self.inside, "azmcp.dll"))
            command = [os.path.join(self.inside, "azmcp")]
        self.start([*command, *chains], {**SETTINGS, **(env or {})})


def is_own(name):
    return name.startswith("Shop.") or name == "Made"


def is_like(name, want):
    if isinstance(want, set):
        return any(is_like(name, one) for one in want)
    if want == STATIC:
        return name.startswith("Shop.Work.") and name.endswith("<lambda>")
    return name == (want if want.startswith("Shop.") or want == "Made" else f"Shop.Work.{want}")


def matches(found, chain):
    """Are FOUND, from the root on, those of the whole CHAIN (True), or of the part of it that is next to the root
    (False)? None: neither."""
    want = list(chain)
    rest = list(found)
    library = False  # since the last frame of the program
    while rest:
        name = rest.pop()
        if not is_own(name):
            library = True
            continue
        if want and want[-1] == "*":
            want.pop()
        elif library:
            return None
        library = False
        if not want or not is_like(name, want.pop()):
            return None
    return not want


def wrong(sample):
    """Why SAMPLE is none of the chains that the program has; None when it is one."""
    kinds = [kind for kind, _ in sample.frames]
    if "abort-marker" in kinds:
        return "cut: " + sample.frames[kinds.index("abort-marker")][1]
    if not sample.user or sample.user[-1] not in ROOTS and not re.search(r"\+0x[0-9a-f]+$", sample.user[-1]):
        return "no root: " + (sample.user[-1] if sample.user else "no frames")
    if ("native", "[jit]") in sample.frames:
        return "code that is nobody's"
    found = [name for kind, name in sample.frames if kind == "dotnet"]
    if any("no name" in name for name in found):
        return "no name"
    if RUN[-1] in found:  # below that is what has called the program
        found = found[:len(found) - found[::-1].index(RUN[-1])]
    own = [name for name in found if is_own(name)]
    if not own:
        return None  # threads of the runtime's, and what it does before and between
    for below, chains in ((RUN, CHAINS), ([], [POOL])):
        if own[len(own) - len(below):] != below or (below and found[len(found) - len(below):] != below):
            continue
        # Frames of the thread pool are below those of the program.
        above = found[:len(found) - len(below)] if below else found[:max(i for i, n in enumerate(found) if is_own(n)) + 1]
        results = [matches(above, chain) for chain in chains] if any(map(is_own, above)) else [False]
        if True in results:
            return None
        if False in results:
            return f"{BETWEEN}: {found[0]}"
    if own in (RUN[1:], RUN[2:]):
        return f"{BETWEEN}: {found[0]}"
    return "other frames: " + " < ".join(found[:8])


def judge(name, samples, complete=COMPLETE):
    names = {name for s in samples for _, name in s.frames}
    if "Shop.Work.Generic" in names and not names & ALONE:
        return [f"{name}: no argument of what is generic is shown"]
    return perl_stacks.count(name, samples, wrong, BEFORE, complete)


class Output(perl_stacks.Output):
    LANGUAGE = "dotnet"


def run_until(a, enough):
    return perl_stacks.run_until(a, enough, Output)
