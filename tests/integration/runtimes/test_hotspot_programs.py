#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Java programs that others wrote, at work under the agent: two compilers, a web server, a database, a search engine.
usage: test_hotspot_programs.py [PROGRAM...]   (exit 77: they cannot be had)
KILN_JAVA: the version that runs them. KILN_PREPARE=DIR: no test; puts the files into DIR and prints each program's
command, to try another profiler on it."""
import collections
import os
import shlex
import subprocess
import sys
import tempfile
import time
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from kiln import agent, textdump  # noqa: E402
import hotspot_stacks as stacks  # noqa: E402

PROGRAMS = ["javac", "kotlin", "jetty", "h2", "lucene"]
VERSION = os.environ.get("KILN_JAVA", "21")
SOURCE = os.path.join(stacks.SOURCE, "programs")
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "kiln", "hotspot-programs")
SECONDS = int(os.environ.get("KILN_SECONDS", "30"))
WHOLE = 0.99
LEAST = 500
BEFORE = {f"cut: {end}" for end in textdump.before_attaching("hotspot")}


def fetch():
    """(the directory with the jars and sources, None), or (None, why they are not available)."""
    if not os.path.exists(CACHE + "/complete"):
        os.makedirs(CACHE, exist_ok=True)
        maven = ["mvn", "-q", "-B", "-f", SOURCE + "/pom.xml"]
        try:
            for more in (["dependency:copy-dependencies", f"-DoutputDirectory={CACHE}/jars"],
                         ["dependency:copy", "-Dartifact=org.apache.lucene:lucene-core:9.12.3:jar:sources",
                          f"-DoutputDirectory={CACHE}"]):
                done = subprocess.run(maven + more, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                                      timeout=600)
                if done.returncode:
                    return None, "Maven: " + (done.stdout + done.stderr)[-300:]
        except (OSError, subprocess.TimeoutExpired) as e:
            return None, str(e)
        with open(CACHE + "/complete", "w", encoding="utf-8"):
            pass
    return CACHE, None


def prepare(root, cache, directory):
    """Puts jars, sources and the test's own classes into DIRECTORY, which is /w below ROOT."""
    for path in [SOURCE + "/HotspotPrograms.java"] + [f"{cache}/jars/{name}" for name in sorted(os.listdir(cache + "/jars"))]:
        subprocess.run(["cp", path, directory], check=True)
    with zipfile.ZipFile(f"{cache}/lucene-core-9.12.3-sources.jar") as sources:
        sources.extractall(directory + "/java-sources")
    jars = ":".join("/w/" + name for name in sorted(os.listdir(directory)) if name.endswith(".jar"))
    subprocess.run(stacks.in_root(root, directory, [
        stacks.java(VERSION), "-m", "jdk.compiler/com.sun.tools.javac.Main", "-g", "-nowarn", "-proc:none", "-cp", jars,
        "-d", "/w", "/w/HotspotPrograms.java"]), check=True)
    return "/w:" + jars


def command_of(program, root, directory, classpath, seconds):
    return stacks.in_root(root, directory, [stacks.java(VERSION), "-Xmx1g", "-cp", classpath, "kiln.HotspotPrograms",
                                            str(seconds), program, "/w"])


def judge(program, samples):
    """Prints how many samples of PROGRAM are right; [problem]. Samples from before the agent attached are marked."""
    judge_one, count, example, unnamed = stacks.Judge([]), collections.Counter(), {}, []
    for s in samples:
        reason = judge_one(s)
        reason = reason if reason.startswith(("cut", "no root")) else "whole"
        count[reason] += s.value
        example[reason] = s
        if any("[unknown]" in name or "no name]" in name for _, name in s.frames):
            unnamed.append(s)
    before = sum(n for reason, n in count.items() if reason in BEFORE)
    total = sum(count.values()) - before
    java = sum(s.value for s in samples if any(kind == "jvm" for kind, _ in s.frames))
    print(f"{program:8} {total:6} samples, {before} before: {100 * count['whole'] / max(total, 1):.2f} % whole, {java} with "
          f"Java frames, {sum(s.value for s in unnamed)} with a frame without a name", flush=True)
    for s in unnamed[:5]:
        print(f"    {s.value:4} without a name: {' < '.join(name for _, name in s.frames)[:1000]}")
    for reason, n in count.most_common():
        if reason != "whole":
            print(f"    {n:4} {reason}: {' < '.join(name for _, name in example[reason].frames)[:1000]}")
    problems = []
    if total < LEAST:
        problems.append(f"{program}: {total} samples are too few")
    if count["whole"] < WHOLE * total:
        problems.append(f"{program}: {total - count['whole']} of {total} samples are not whole")
    if sum(s.value for s in unnamed) > 0.001 * total:
        problems.append(f"{program}: {len(unnamed)} stacks have a frame without a name")
    return problems


def main():
    if os.geteuid():
        print("skipped: not root")
        return 77
    root, why = stacks.root_of(VERSION)
    cache, why = fetch() if root else (None, why)
    if not cache:
        print(f"skipped: {why}")
        return 77
    problems = []
    if directory := os.environ.get("KILN_PREPARE"):
        os.makedirs(directory, 0o755)
        classpath = prepare(root, cache, directory)
        for program in sys.argv[1:] or PROGRAMS:
            print(shlex.join(command_of(program, root, directory, classpath, 24 * 3600)))
        return 0
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        classpath = prepare(root, cache, directory)
        for program in sys.argv[1:] or PROGRAMS:
            command = command_of(program, root, directory, classpath, 24 * 3600)
            with tempfile.TemporaryFile("w+") as out:
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
                try:
                    with agent.Agent("--duration", f"{SECONDS}s", "--pid", process.pid, config=stacks.config(hz=97)) as a:
                        if a.wait(SECONDS + 120):
                            raise RuntimeError(f"agent: {a.stderr()[-500:]}")
                        problems += judge(program, a.samples())
                    time.sleep(0.5)
                    if process.poll() is not None:
                        out.seek(0)
                        problems.append(f"{program} has ended: {out.read()[-500:]}")
                finally:
                    process.kill()
                    process.wait()
    for problem in problems:
        print(f"FAILED: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
