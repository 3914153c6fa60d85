#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Java of several versions under the agent: what a sample shows is what the machine itself says of its stacks.
usage: test_hotspot.py chains|special [VERSION...]   (exit 77: no such machine can be had)
Without versions the oldest and the newest one, interpreted and by the compilers' default; with KILN_MATRIX=1 all
versions, and each with more options. With KILN_LONG=1 at 997 Hz until there are 2,000 samples of each part (a thread, or
classes) of each program, and no more than 0.5 % of a program's may be cut."""
import collections
import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from kiln import agent, textdump  # noqa: E402
import hotspot_stacks as stacks  # noqa: E402

MATRIX = os.environ.get("KILN_MATRIX") == "1"
LONG = os.environ.get("KILN_LONG") == "1"
PROGRAMS = os.environ.get("KILN_RUNTIME_PROGRAMS", "")
# The threads of the construct "blocking" are named "parking".
CONSTRUCTS = ["calls", "recursion", "lambdas", "exceptions", "reflection", "jni", "blocking"]
# burn() is not inlined: it has its own frame, so that the leaf of a chain is known.
WHOLE = "-XX:CompileCommand=dontinline,kiln/HotspotWork.burn"
# {mode: (first Java version that has it, options)}. An option with @ stands for those of stacks.archived().
MODES = {"default": (8, [WHOLE]), "interpreted": (8, ["-Xint"])}
MORE = {"C1": (8, [WHOLE, "-XX:TieredStopAtLevel=1"]), "C2": (8, [WHOLE, "-XX:-TieredCompilation"]),
        "inlined": (8, []), "not inlined": (8, ["-XX:-Inline"]),
        "one heap": (9, [WHOLE, "-XX:-SegmentedCodeCache"]),
        "small code cache": (8, [WHOLE, "-XX:ReservedCodeCacheSize=4m"]),
        "Serial": (8, [WHOLE, "-XX:+UseSerialGC", "-XX:-UseCompressedOops"]),
        "Parallel": (8, [WHOLE, "-XX:+UseParallelGC", "-XX:-UseCompressedClassPointers"]),
        "ZGC": (17, [WHOLE, "-XX:+UseZGC"]), "Shenandoah": (17, [WHOLE, "-XX:+UseShenandoahGC"]),
        "Epsilon": (11, [WHOLE, "-XX:+UnlockExperimentalVMOptions", "-XX:+UseEpsilonGC", "-Xmx4g"]),
        "large pages": (8, [WHOLE, "-XX:+UseTransparentHugePages"]),
        "CDS archive": (17, [WHOLE, "@CDS"]), "AOT cache": (25, [WHOLE, "@AOT"])}
BEFORE = {f"cut: {end}" for end in textdump.before_attaching("hotspot")}
# The largest shares of samples; one sample is always allowed.
CUT = 0.005 if LONG else 0.01   # the first page of a signal's or a new thread's stack may not be mapped yet
WRONG = 0.005
CALLS = 0.03  # calls that no chain has; the outermost frame of code that is just deoptimized may be missing
TOGETHER = 4  # programs at a time; when many of one cgroup start at once, their first stacks are cut
ENOUGH = 2000 if LONG else 100  # samples of each program, with KILN_LONG=1 of each thread, if they come within WAIT
LEAST = ENOUGH // 10
WORKER = "the worker of "  # followed by a construct; longer than a thread's name in the kernel
NAMED = 0.95  # smallest share of samples with the whole name of such a thread
WAIT = 1200 if LONG else 240


def wait_for(name, program, texts):
    """Waits until PROGRAM has printed all of TEXTS."""
    deadline = time.monotonic() + WAIT
    while not all(text in program.said() for text in texts):
        if time.monotonic() > deadline or program.process.poll() is not None:
            raise RuntimeError(f"{name} did not say {texts}, but {program.said()[-500:]}")
        time.sleep(0.2)


def thread_of(text):
    """The name of the thread of a sample in text form."""
    return "".join(re.findall(r"^  thread\.name: (.*) \(Str", text, re.M))


def class_of(text):
    """Which of the programs "unloading" and "storm" a sample in text form is of; "": of neither's classes."""
    return "storm" if "kiln.HotspotStorm." in text else "generations" if "kiln.HotspotG" in text else ""


def run(programs, others=(), parts=None, part_of=lambda text: ""):
    """{pid: samples} of PROGRAMS and OTHERS, when each of PROGRAMS has ENOUGH samples with Java frames, or after WAIT s. With
    PARTS ({program: its parts}) as many of each of its parts; PART_OF tells the part of a sample in text form."""
    every = [p.pid for p in [*programs, *others]]
    deadline, seen, rest = time.monotonic() + WAIT, collections.Counter(), ""
    wanted = [(p.pid, part) for p in programs for part in (parts or {}).get(p, [""])]
    with agent.Agent(*sum((["--pid", pid] for pid in every), []), config=stacks.config(997 if LONG else 97)) as a:
        with open(a.out_path, encoding="utf-8", errors="replace") as out:
            while min(seen[key] for key in wanted) < ENOUGH and time.monotonic() < deadline:
                if a.process.poll() is not None:
                    break
                time.sleep(0.5)
                *whole, rest = (rest + out.read()).split("New Sample")
                for sample in whole:
                    if "Instrumentation: jvm" in sample:
                        n = sum(map(int, re.findall(r"^  Values: \[(\d+)", sample, re.M)))
                        for pid in set(map(int, re.findall(r"process\.pid: (\d+)", sample))):
                            seen.update(dict.fromkeys({(pid, part_of(sample)), (pid, "")}, n))
        status = a.stop()
        if status:
            raise RuntimeError(f"agent: exit {status}: {a.stderr()[-500:]}")
        samples = textdump.parse(a.stdout().splitlines())
    return {pid: [s for s in samples if s.pid == pid] for pid in every}


def all_of(sample):
    return " < ".join(f"{name}:{line}" for (_, name), (_, line) in zip(sample.frames, sample.places))


def construct_of(sample):
    construct = sample.comm.removeprefix(WORKER).replace("parking", "blocking")
    return construct if construct in CONSTRUCTS else ""


def judge(name, samples, judge_one, right_least, part_of=construct_of):
    """Prints how many samples of a program are right; [problem]. Samples from before the agent attached to the machine are
    marked in their stacks and not counted."""
    count, example = collections.Counter(), {}
    of_part, named = collections.defaultdict(collections.Counter), collections.Counter()
    for s in samples:
        reason = judge_one(s)
        count[reason] += s.value
        example[reason] = s
        part = part_of(s)
        if s.comm.startswith(WORKER[:7]):
            named[s.comm.startswith(WORKER) and len(s.comm) > 15] += s.value
        if part and reason not in BEFORE:
            of_part[part]["cut" if reason.startswith(("cut", "no root")) else
                          reason if reason in ("right", "way", "native") else "other"] += s.value
    before = sum(n for reason, n in count.items() if reason in BEFORE)
    count = collections.Counter({reason: n for reason, n in count.items() if reason not in BEFORE})
    total = sum(count.values())
    cut = sum(n for reason, n in count.items() if reason.startswith(("cut", "no root")))
    calls = sum(n for reason, n in count.items() if reason.startswith("call"))
    right, way, native = count["right"], count["way"], count["native"]
    wrong = total - cut - calls - right - way - native
    print(f"{name:20} {total:6} samples, {before:3} before: {right} right, {way} on the way, {calls} other calls, "
          f"{native} native, {cut} cut, {wrong} wrong", flush=True)
    if LONG:
        for part, n in sorted(of_part.items()):
            print(f"    {part}: {', '.join(f'{k} {v}' for k, v in n.most_common())}")
    for reason, n in count.most_common():
        if reason not in ("right", "way", "native"):
            print(f"    {n:4} {reason}: {all_of(example[reason])[:1200]}")
    problems = []
    if total < LEAST:
        problems.append(f"{name}: {total} samples are too few")
    for what, n, most in (("are cut", cut, CUT), ("are wrong", wrong, WRONG), ("have other calls", calls, CALLS)):
        if n > max(most * total, 1):
            problems.append(f"{name}: {n} of {total} samples {what}")
    if named[True] < NAMED * named.total() - 1:
        problems.append(f"{name}: {named[False]} of {named.total()} samples have a part of their thread's name")
    if right < right_least * (total - cut - native) - 1:
        problems.append(f"{name}: {right} of {total} samples are right to their end")
    return problems


def modes_of(version, root, directory):
    """{mode: options} of the modes that VERSION has. KILN_MODES (comma-separated) selects modes."""
    release = stacks.release(version, root)
    modes = MODES | (MORE if MATRIX else {})
    names = os.environ.get("KILN_MODES", ",".join(modes)).split(",")
    out = {name: options for name, (first, options) in modes.items() if name in names and first <= release}
    for name, options in out.items():
        out[name] = sum((stacks.archived(version, root, directory, o[1:], CONSTRUCTS) if o[0] == "@" else [o]
                         for o in options), [])
    return out


def chains(found, directory):
    marks = stacks.marks("HotspotWork.java")
    lines = range(marks["burn_first"], marks["burn_last"] + 1)
    problems = []
    wanted = {(version, mode): (root, options) for version, root in found.items()
              for mode, options in modes_of(version, root, directory).items()}
    every = list(wanted.items())
    for part in (every[i:i + TOGETHER] for i in range(0, len(every), TOGETHER)):
        with contextlib.ExitStack() as stack:
            programs = {key: stack.enter_context(stacks.Program(key[0], r, directory, CONSTRUCTS, *options,
                                                                seconds=3 * WAIT))
                        for key, (r, options) in part}
            for key, p in programs.items():
                wait_for(key, p, ["told " + construct.replace("blocking", "parking") for construct in CONSTRUCTS])
            workers = [WORKER + construct.replace("blocking", "parking") for construct in CONSTRUCTS]
            samples = run(list(programs.values()), parts=dict.fromkeys(programs.values(), workers) if LONG else None,
                          part_of=thread_of)
            for key, p in programs.items():
                one = stacks.Judge(stacks.chains(p.said()), lines=lines)
                problems += judge(" ".join(key), samples[p.pid], one, 0 if key[1] == "inlined" else 0.3)
    return problems


def special(found, directory):
    """Special cases: virtual threads, unloaded classes, deoptimized code, a program that only claims to be Java, and the
    tracer off."""
    problems = []
    newest = max(found, key=lambda version: stacks.release(version, found[version]))
    with contextlib.ExitStack() as stack:
        programs = {version: stack.enter_context(stacks.Program(version, root, directory, ["unloading", "storm"], "-Xmx64m"))
                    for version, root in found.items()}
        if stacks.release(newest, found[newest]) >= 21:
            programs["virtual"] = stack.enter_context(stacks.Program(
                newest, found[newest], directory, ["vyield"], main="kiln.HotspotLoom"))
        programs["forged"] = stack.enter_context(Forged())
        for name, p in programs.items():
            wait_for(name, p, ["begin"])
        samples = run([p for name, p in programs.items() if name != "forged"], [programs["forged"]],
                      {programs[version]: ["generations", "storm"] for version in found} if LONG else None, class_of)
        for name, p in programs.items():
            mine = samples[p.pid]
            if name == "forged":
                problems += judge_forged(mine)
            elif name == "virtual":
                problems += judge(name, mine, judge_virtual, 0.05)
            else:
                problems += judge(f"{name} classes", mine, judge_classes, 0.3,
                                  lambda s: class_of(" ".join(name for _, name in s.frames)))
    return problems + toggle(newest, found[newest], directory)


WHOLE_ONLY = stacks.Judge([])


def judge_classes(sample):
    """Each generation of a class has a thread of the same name, whose samples must show that generation only."""
    reason = WHOLE_ONLY(sample)
    if reason.startswith(("cut", "no root")):
        return reason
    names = [name for name, _, _ in stacks.java_frames(sample)]
    shown = {name.split(".")[1] for name in names if name.startswith("kiln.HotspotG")}
    if shown:
        # The thread that loads the class creates the new thread, which has the name of its creator at first.
        if len(shown) == 1 and sample.comm.startswith(WORKER[:7]):
            return "way"
        return "right" if shown == {sample.comm} else f"{sample.comm} shows {shown}"
    if any(name.startswith("kiln.HotspotStorm.") for name in names):
        at = [name.rpartition(".")[2] for name in names if name.startswith("kiln.HotspotStorm.")]
        if at == ["<init>"]:
            return "way"
        return "right" if re.fullmatch(r"(second )*(first )?applyAsLong", " ".join(at)) else "lost: " + " ".join(at)
    return "native" if reason == "native" else "way"


def judge_virtual(sample):
    """The frames reach the beginning of the virtual thread, or where it was frozen, and then those of its carrier."""
    reason = WHOLE_ONLY(sample)
    if reason.startswith(("cut", "no root")):
        return reason
    names = [name for name, _, _ in stacks.java_frames(sample)]
    if not any(name.startswith("kiln.") for name in names):
        return "native"
    frozen = any("in the heap" in name for _, name in sample.frames)
    carrier = any(name.endswith("ForkJoinWorkerThread.run") for name in names)
    if not carrier:
        return "no carrier" if names[-1] != "kiln.HotspotLoom.main" else "native"
    if not frozen and not any(name.startswith("kiln.HotspotLoom.work") for name in names):
        return "neither begins nor is frozen"
    return "right" if names[0] == "kiln.HotspotLoom.burn" else "way"


class Forged:
    def __init__(self):
        self.process = subprocess.Popen([os.path.join(PROGRAMS, "hotspot-forged")], stdout=subprocess.PIPE, text=True)
        self.pid, self.line = self.process.pid, self.process.stdout.readline()

    def said(self):
        return self.line

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def judge_forged(samples):
    """The forged program has no Java frames, but complete native stacks."""
    whole = sum(s.value for s in samples if "main" in s.user and s.user[-1] in stacks.ROOTS)
    total = sum(s.value for s in samples)
    print(f"{'forged':20} {total:6} samples, {whole} whole")
    if total < LEAST or whole < 0.9 * total - 4:
        return [f"forged: {whole} of {total} samples are whole"]
    if any(kind == "jvm" for s in samples for kind, _ in s.frames):
        return ["forged: frames of Java"]
    return []


def toggle(version, root, directory):
    """With the tracer off there are only native frames, and no marker of missing Java frames."""
    with stacks.Program(version, root, directory, ["calls"]) as p:
        wait_for(version, p, ["chain"])
        with agent.Agent("--duration", "3s", "--pid", p.pid, config=stacks.config(more='    tracers: "native,kernel"')) as a:
            if a.wait(WAIT):
                raise RuntimeError(a.stderr()[-500:])
            samples = a.samples()
    kinds = {kind for s in samples for kind, _ in s.frames} - {"kernel"}
    if "native" not in kinds or kinds - {"native", "abort-marker"}:
        return [f"tracer off: {kinds}"]
    return []


def main():
    if os.geteuid():
        print("skipped: not root")
        return 77
    found = {}
    for version in sys.argv[2:] or (stacks.VERSIONS if MATRIX else [stacks.OLDEST, stacks.NEWEST]):
        root, why = stacks.root_of(version)
        if root:
            found[version] = root
        else:
            print(f"skipped: Java {version}: {why}")
    if not found:
        return 77
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        stacks.compile_classes(found, directory)
        problems = {"chains": chains, "special": special}[sys.argv[1]](found, directory)
    for problem in problems:
        print(f"FAILED: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
