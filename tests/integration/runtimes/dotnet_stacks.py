# SPDX-License-Identifier: Apache-2.0
""".NET's runtimes, and the check of samples against the call chains of dotnet_work.cs."""
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
# TieredPGO off: with profiles of its calls the JIT compiler would inline the bodies of lambda expressions.
SETTINGS = {"DOTNET_SYSTEM_GLOBALIZATION_INVARIANT": "1", "DOTNET_TieredPGO": "0"}
RUN = ["Shop.Work.Do", "Shop.Work.For", "Shop.Work.Main"]
STATIC = "<lambda>"  # stands for a lambda expression in CHAINS

# Generic code that all reference types share is shown with the name of the type parameter.
SHARED = {"Shop.Box<T>.Put", "Shop.Box<T>.Lid.Close<U>"}
ALONE = {"Shop.Box<int>.Put", "Shop.Box<Pair>.Put", "Shop.Box<int>.Lid.Close<long>"}

# Methods that the compiler adds to the class that it makes for an iterator.
ITERATES = {f"Each.System.{name}" for name in ("IDisposable.Dispose", "Collections.Generic.IEnumerable<long>.GetEnumerator",
                                               "Collections.Generic.IEnumerator<long>.get_Current")}

# The program's frames, leaf first: a name or a set of names, relative to "Shop.Work." unless it begins with "Shop.". "*":
# frames of the library and native frames; elsewhere these are allowed at the leaf only. The root side is RUN, or the pool.
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
    ["Async"], ["TotalAsync", "*", "Async"], ["TotalAsync", "*", "TotalAsync", "Async"],  # until its first wait
    ["Spin", "Alloc"], ["Alloc"],
]
POOL = ["Spin", "Once", "TotalAsync"]


def runtime(version):
    """(the directory with .NET VERSION, None), or (None, why it is not available)."""
    done = subprocess.run([SCRIPT, version], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode == 77:
        return None, done.stderr.strip()
    if done.returncode:
        raise RuntimeError(f"{SCRIPT}: {done.stderr[-500:]}")
    return done.stdout.strip(), None


def compile_work():
    """(the path of the compiled dotnet_work.cs, None), or (None, why it cannot be compiled)."""
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
    """Runs dotnet_work.cs with the .NET VERSION in ROOT. 8 is a framework; 9 is in the folder of a program; the others are one
    file with another program, into which dotnet_work.cs is loaded as a startup hook, and run all chains."""

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
    """Compares the names FOUND with CHAIN from the root on. True: the whole chain; False: only its part next to the root;
    None: neither."""
    want = list(chain)
    rest = list(found)
    library = False  # whether there were library frames since the last frame of the program
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
    """Why SAMPLE matches none of the chains of the program; None when it matches one."""
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
    if RUN[-1] in found:  # cut off the frames that called Main
        found = found[:len(found) - found[::-1].index(RUN[-1])]
    own = [name for name in found if is_own(name)]
    if not own:
        return None  # threads of the runtime, and its own work
    for below, chains in ((RUN, CHAINS), ([], [POOL])):
        if own[len(own) - len(below):] != below or (below and found[len(found) - len(below):] != below):
            continue
        # In the thread pool, cut off the frames of the pool on the root side.
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
