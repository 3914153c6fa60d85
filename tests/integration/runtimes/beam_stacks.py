# SPDX-License-Identifier: Apache-2.0
"""Erlang's machines (BEAM), and the check of samples against the call chains of beam_work.erl."""
import collections
import glob
import os
import re
import shutil
import subprocess

from kiln import textdump

import perl_stacks
import php_fpm
import python_stacks
from python_stacks import HERE, ROOTS, config  # noqa: F401

RELEASES = ["25", "27", "29"]
COMPLETE = 0.995
MOST_WAY = 0.1  # the largest share of samples that may be taken between two works
BEFORE = {f"cut: {end}" for end in textdump.before_attaching("beam")}
WORKS = ["recursion", "reversed", "lookup", "counted", "joined", "packed", "folded", "tuples", "thrown", "wrong", "many",
         "applied", "told", "dirty", "loaded"]
SOURCES = ("beam_work.erl", "beam_work.ex", "beam_swap.erl")


def machine(release):
    """(a root directory with Erlang/OTP RELEASE; None), or (None; why it is not available)."""
    script = os.path.join(HERE, "..", "..", "..", "hack", "lib", "erlang.sh")
    done = subprocess.run([script, release], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode == 77:
        return None, done.stderr.strip()
    if done.returncode:
        raise RuntimeError(f"{script}: {done.stderr[-500:]}")
    php_fpm.make_devices(done.stdout.strip())
    return done.stdout.strip(), None


def erl(root, *arguments):
    """(command, additional environment) that runs Erlang in the root directory ROOT without Debian's start script."""
    binaries = "/" + os.path.relpath(glob.glob(os.path.join(root, "usr/lib/erlang/erts-*/bin"))[0], root)
    return (["chroot", root, f"{binaries}/erlexec", "-noshell", "-noinput", *arguments],
            {"ROOTDIR": "/usr/lib/erlang", "BINDIR": binaries, "EMU": "beam", "PROGNAME": "erl", "HOME": "/tmp",
             "LC_ALL": "C.UTF-8", "ERL_CRASH_DUMP": "/dev/null"})


class Program(python_stacks.Program):
    """Runs beam_work.erl in the root directory ROOT. DIRTY: whether the agent knows the frames of processes on dirty
    schedulers of this release."""

    def __init__(self, root, *options, works=None, dirty=True):
        self.dirty = dirty
        self.elixir = os.path.isdir(os.path.join(root, "usr/lib/elixir"))
        self.works = works or WORKS + (["elixir"] if self.elixir else [])
        self.inside = os.path.join(root, "tmp", f"kiln-{os.getpid()}-{id(self)}")
        os.mkdir(self.inside)
        for name in SOURCES:
            shutil.copy(os.path.join(HERE, name), self.inside)
        here = "/" + os.path.relpath(self.inside, root)
        elixir = glob.glob(os.path.join(root, "usr/lib/elixir/lib/*/ebin")) if self.elixir else []
        works = ", ".join(f'"{name}"' for name in self.works)
        swaps = "".join(f'''{{ok, _, Swap{v}}} = compile:file("{here}/beam_swap", [binary, {{d, 'OUTER', outer_{v}}},
            {{d, 'INNER', inner_{v}}} {more}]), ok = file:write_file("{here}/beam_swap_{v}.beam", Swap{v}),'''
                        for v, more in (("a", ", {d, 'MORE', more}"), ("b", "")))
        # The modules are compiled by the machine itself, whose format they must have.
        program = f"""{{ok, _}} = compile:file("{here}/beam_work", [{{outdir, "{here}"}}]), {swaps}
            beam_work:main(["{here}", {works}])."""
        self.start(*erl(root, "-pa", here, *("/" + os.path.relpath(path, root) for path in elixir), *options, "-eval", program))


# ---- the expected frames

def read_sources():
    """({function, in its language's notation, without arity: [file, first line, last line]}, {mark: [line]})."""
    functions, marks = {}, collections.defaultdict(list)
    for file, prefix, head in ("beam_work.erl", "beam_work:", r"([a-z]\w*)\("), \
                              ("beam_work.ex", "Shop.Cart.", r"  defp? ([a-z]\w*[?!]?)\("):
        name = None
        with open(os.path.join(HERE, file), encoding="utf-8") as f:
            for number, line in enumerate(f, 1):
                marked = re.search(r"[%#] @(\w+)$", line)
                if marked:
                    marks[marked[1]].append(number)
                begins = re.match(head, line)
                if begins and prefix + begins[1] != name:
                    name = prefix + begins[1]
                    functions[name] = [file, number, number]
                elif name and line.strip() and not line.startswith("%"):
                    functions[name][2] = number
    return functions, marks


FUNCTIONS, MARKS = read_sources()
FUN = "beam_work:'-folded/1-fun-0-'/2"
FN = "anonymous fn/2 in Shop.Cart.total/1"
OF = {FUN: "beam_work:folded", FN: "Shop.Cart.total"}


def full(function):
    return function if ":" in function or "." in function else "beam_work:" + function


def anywhere(function):
    """A regular expression for a frame of FUNCTION at any of its lines."""
    name = full(function)
    file, first, last = FUNCTIONS[OF.get(name) or name.split("/")[0]]
    return re.escape(name) + f":{file}:(?:{'|'.join(map(str, range(first, last + 1)))}) "


def calls(function, mark=None):
    """A regular expression for a frame of FUNCTION at the line of a call, which has the comment @MARK."""
    name = full(function)
    file = FUNCTIONS[OF.get(name) or name.split("/")[0]][0]
    mark = mark or re.search(r"(\w+)/\d+$", name)[1]
    return re.escape(name) + f":{file}:(?:{'|'.join(map(str, MARKS[mark]))}) "


def others(*modules, least=0, most=20):
    """A regular expression for LEAST to MOST frames of the given modules of Erlang's or Elixir's library."""
    return f"(?:(?:{'|'.join(modules)})[:.][^ ]+ ){{{least},{most}}}"


SPIN = anywhere("spin/2")
PRICE = f"(?:(?:{anywhere('Shop.Cart.spin/2')})?{calls('Shop.Cart.price!/1', 'elixir_price')}|{anywhere('Shop.Cart.price!/1')})"
CHAINS = {
    "recursion": f"(?:{SPIN}(?:{calls('down/1')}){{40}}|{anywhere('down/1')}(?:{calls('down/1')}){{0,40}})",
    "reversed": f"(?:{others('lists')}{calls('reversed/1')}|{anywhere('reversed/1')})",
    "lookup": f"(?:{others('ets')}{anywhere('lookup/2')}(?:{calls('lookup/2')}){{0,1000}})",
    "counted": anywhere("counted/1"),
    "joined": f"(?:{others('erlang', most=3)}{calls('joined/1')}|{anywhere('joined/1')})",
    "packed": f"(?:{others('zlib', 'erlang', 'lists')}{calls('packed/1')}|{anywhere('packed/1')})",
    "folded": f"(?:(?:{SPIN}{calls(FUN, 'folded_fun')}|{anywhere(FUN)})?{others('lists', least=1, most=1)}{calls('folded/1')}|"
              f"{anywhere('folded/1')})",
    "tuples": f"{anywhere('tuples/1')}(?:{calls('tuples/1')}){{0,50}}",
    "thrown": f"(?:(?:{anywhere('thrower/1')}(?:{calls('thrower/1')}){{0,40}}{calls('thrown_once/1')}|{anywhere('thrown_once/1')})"
              f"{calls('thrown/1')}|{anywhere('thrown/1')})",
    "wrong": f"(?:{anywhere('divide/2')}{calls('wrong/1')}|{anywhere('wrong/1')})",
    "many": f"(?:{SPIN}(?:{calls('many/5')}){{1,40}}|{anywhere('many/5')}(?:{calls('many/5')}){{0,40}})",
    "applied": f"(?:{SPIN}{calls('applied/2')}|{anywhere('applied/2')})",
    "told": f"(?:{others('lists', 'erlang')}{anywhere('teller/1')}|{anywhere('told/0')})",
    "dirty": f"(?:{others('erts_debug', most=1)}{calls('dirty/0')}|{anywhere('dirty/0')})",
    "swap": "(?:(?:beam_swap:inner_a/2:[^ ]+ )?(?:beam_swap:outer_a/1:[^ ]+ )+|"
            "(?:beam_swap:inner_b/2:[^ ]+ )?(?:beam_swap:outer_b/1:[^ ]+ )+)"
            f"{calls('one_of/2')}{calls('loaded/1')}",
    "loaded": f"(?:{others('[a-z_]+', most=30)}{anywhere('one_of/2')}{calls('loaded/1')}|{anywhere('loaded/1')})",
    "elixir": f"(?:(?:{PRICE}{calls(FN, 'elixir_fun')}|{anywhere(FN)})?{others('Enum', 'lists', least=1, most=3)}"
              f"{calls('Shop.Cart.total/1', 'elixir')}|{anywhere('Shop.Cart.total/1')})",
}
RARE = calls("work/2", "rare")
CHAINS["lookup"] += RARE
CHAINS["packed"] += RARE
AGAIN = calls("again/2")
WAY = re.compile(f"(?:{anywhere('work/2')}|{anywhere('rarely/0')})?{AGAIN}|{anywhere('again/2')}")
CHAINS = {name: re.compile(chain + AGAIN) for name, chain in CHAINS.items()}


# ---- samples

def frames(sample):
    """The Erlang frames, leaf first, as text: "name:file:line " for each. Code that belongs to no function is left out."""
    return "".join(f"{name}:{os.path.basename(file)}:{line} " for (kind, name), (file, line) in zip(sample.frames, sample.places)
                   if kind == "beam" and "::" not in name)


def wrong(sample, dirty=True):
    """(why SAMPLE is wrong, None), or (None, name of its chain), or (None, None) when it is not of the program's work."""
    kinds = [kind for kind, _ in sample.frames]
    if "abort-marker" in kinds:
        return "cut: " + sample.frames[kinds.index("abort-marker")][1], None
    if not sample.user:
        return "no frames", None
    if sample.user[-1] not in ROOTS and not re.match(r"libc\.so\.6\+0x", sample.user[-1]):
        return "no root: " + sample.user[-1], None
    found = frames(sample)
    if not found:
        on_dirty = "dirty" in sample.comm
        if "scheduler" not in sample.comm and not on_dirty or ("beam", "global::process_main") in sample.frames:
            return None, None
        if on_dirty and not (dirty and "erts_call_dirty_bif" in sample.user):
            return None, None
        return "no frames of Erlang: " + " < ".join(sample.user[:6]), None
    for name, chain in CHAINS.items():
        if chain.fullmatch(found):
            return None, name
    if not re.search(r"beam_work:|beam_swap:|Shop\.", found):  # processes of the machine itself
        return None, "machine"
    return (None, "way") if WAY.fullmatch(found) else ("other frames: " + " < ".join(found.split(" ")[:12]), None)


def judge(name, samples, program, complete=COMPLETE, least=3):
    """Prints how many samples of PROGRAM are right; [problem]. LEAST: the samples that each of its works must have."""
    why, of = collections.Counter(), collections.Counter()
    for s in samples:
        reason, chain = wrong(s, program.dirty)
        if os.environ.get("KILN_SHOW") and reason and reason not in BEFORE and reason not in why:
            print(reason, *(f"{kind} {frame}:{line}" for (kind, frame), (_, line) in zip(s.frames, s.places)), sep="\n    ")
        if reason in BEFORE:
            continue
        if reason or chain:
            why[reason] += s.value
            of[chain] += s.value
    right, shown = why.pop(None, 0), sum(why.values())
    shown += right
    print(f"{name:12} {shown:6} samples, {right / max(shown, 1):8.2%} right; {dict(of)}", flush=True)
    for reason, n in why.most_common(8):
        print(f"    {n:4} {reason}")
    lacking = [work for work in program.works if (program.dirty or work != "dirty") and of[work] + (of["swap"] if work == "loaded" else 0) < least]
    problems = [f"{name}: too few samples of {', '.join(lacking)}"] if lacking else []
    if of["way"] > max(MOST_WAY * shown, 5):
        problems.append(f"{name}: {of['way']} of {shown} samples show no work")
    if not right or shown - right > max((1 - complete) * shown, 2):
        problems.append(f"{name}: {right} of {shown} samples are right")
    return problems


class Output(perl_stacks.Output):
    LANGUAGE = "beam"


def run_until(a, enough):
    return perl_stacks.run_until(a, enough, Output)


def have(least, pids):
    """A condition for run_until(): each of PIDS has LEAST samples."""
    return lambda output: all(output.all[pid] >= least for pid in pids)
