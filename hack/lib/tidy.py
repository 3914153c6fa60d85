# SPDX-License-Identifier: Apache-2.0
"""clang-tidy and some checks of clang's static analyzer over the files on standard input (each ended by a zero byte),
several at once. A clean result is cached outside the tree, under a hash of all that it depends on: the preprocessed file
with comments, its options, the checks and the version.

usage: tidy.py BUILD-DIR"""
import concurrent.futures
import hashlib
import json
import os
import shlex
import subprocess
import sys
import time

KEEP_DAYS, SECONDS = 30, 120
# The analyzer's checks that look at the syntax tree or the control flow graph alone. clang-tidy would run its
# path-sensitive engine for any of them, which takes fifteen times as long as all else, and report nothing of it. The
# path-sensitive checks do not know __attribute__((cleanup)) and report each such variable as a leak.
ANALYZER = ("deadcode", "security.FloatLoopCounter", "security.insecureAPI.UncheckedReturn",
            "security.insecureAPI.gets", "unix.MallocSizeof")
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "kiln", "tidy")


def commands(build):
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as f:
        return {os.path.relpath(os.path.join(c["directory"], c["file"])): c for c in json.load(f)}


def compiler_options(command):
    """Options and file of a compile command, without the compiler, a launcher before it, and its outputs."""
    words = shlex.split(command["command"])
    words = words[next(i for i, word in enumerate(words) if word.startswith("-")):]
    options = [w for w in words if w not in ("-c", "-MD")]
    for flag in ("-o", "-MF", "-MT"):
        if flag in options:
            del options[options.index(flag):options.index(flag) + 2]
    return options


def key(command, options, common):
    """Name of the file in the cache: a hash of all that the result depends on. None: clang cannot preprocess the file."""
    done = subprocess.run(["clang", "-E", "-C", *options], cwd=command["directory"], capture_output=True, check=False)
    if done.returncode:
        return None
    return hashlib.sha256(common + " ".join(options).encode() + done.stdout).hexdigest()


def run(path, *command, cwd=None):
    """Output of COMMAND when it fails, with the name of PATH; None when it is successful."""
    try:
        done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                              timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return f"{command[0]}: {path}: not done after {SECONDS} s"
    return f"{done.stdout}{command[0]}: {path}" if done.returncode else None


def look(path, command, common, build):
    """The faults that are found in the file PATH, as text; None without faults."""
    options = compiler_options(command)
    name = key(command, options, common)
    stamp = os.path.join(CACHE, name) if name else None
    if stamp and os.path.exists(stamp):
        os.utime(stamp)
        return None
    fault = run(path, "clang-tidy", "-p", build, "--quiet", "--extra-arg=-Wno-error", path) or run(
        path, "clang", *options, "-Wno-everything", "-Wno-error", "--analyze", "--analyzer-no-default-checks",
        "--analyzer-output", "text", "-Xclang", "-analyzer-werror", "-Xclang",
        "-analyzer-checker=" + ",".join(ANALYZER), cwd=command["directory"])
    if fault:
        return fault
    if stamp:
        with open(stamp, "w", encoding="utf-8"):
            pass
    return None


def main():
    build = sys.argv[1]
    files = [f for f in sys.stdin.read().split("\0") if f]
    known = commands(build)
    # Left out are BPF programs, and test programs that are not compiled by the commands of this build.
    files = [f for f in files if f in known]
    os.makedirs(CACHE, exist_ok=True)
    for entry in os.scandir(CACHE):
        if entry.stat().st_mtime < time.time() - KEEP_DAYS * 86400:
            os.unlink(entry.path)
    with open(".clang-tidy", "rb") as f:
        version = subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True).stdout
        common = f.read() + repr(ANALYZER).encode() + version
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        faults = [fault for fault in pool.map(lambda f: look(f, known[f], common, build), files) if fault]
    print("\n".join(faults), end="\n" if faults else "")
    return 1 if faults else 0


sys.exit(main())
