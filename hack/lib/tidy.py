# SPDX-License-Identifier: Apache-2.0
"""clang-tidy over the files on standard input (each ended by a zero byte), several at once. What was clean is remembered
outside the tree by all that the verdict depends on (what the compiler sees of the file with comments, its options, the
checks and the version), and not looked at again.

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
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "kiln", "tidy")


def commands(build):
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as f:
        return {os.path.relpath(os.path.join(c["directory"], c["file"])): c for c in json.load(f)}


def key(command, common):
    """None: not to be told."""
    words = shlex.split(command["command"])
    at = words.index("-o")
    options = [w for w in words[1:at] + words[at + 2:] if w not in ("-c", "-MD")]
    for flag in ("-MF", "-MT"):
        if flag in options:
            del options[options.index(flag):options.index(flag) + 2]
    done = subprocess.run(["clang", "-E", "-C", *options], cwd=command["directory"], capture_output=True, check=False)
    if done.returncode:
        return None
    return hashlib.sha256(common + " ".join(options).encode() + done.stdout).hexdigest()


def look(path, command, common, build):
    """What clang-tidy found fault with, or None."""
    name = key(command, common) if command else None
    stamp = os.path.join(CACHE, name) if name else None
    if stamp and os.path.exists(stamp):
        os.utime(stamp)
        return None
    try:
        done = subprocess.run(["clang-tidy", "-p", build, "--quiet", path], capture_output=True, text=True, check=False,
                              timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return f"clang-tidy: {path}: not done after {SECONDS} s"
    if done.returncode:
        return f"{done.stdout}clang-tidy: {path}"
    if stamp:
        with open(stamp, "w", encoding="utf-8"):
            pass
    return None


def main():
    build = sys.argv[1]
    files = [f for f in sys.stdin.read().split("\0") if f]
    known = commands(build)
    os.makedirs(CACHE, exist_ok=True)
    for entry in os.scandir(CACHE):
        if entry.stat().st_mtime < time.time() - KEEP_DAYS * 86400:
            os.unlink(entry.path)
    with open(".clang-tidy", "rb") as f:
        common = f.read() + subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True).stdout
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        faults = [fault for fault in pool.map(lambda f: look(f, known.get(f), common, build), files) if fault]
    print("\n".join(faults), end="\n" if faults else "")
    return 1 if faults else 0


sys.exit(main())
