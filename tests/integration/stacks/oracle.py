#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Verifies the chains that the workloads report: takes a few stacks of each with gdb, and checks them as the agent's
samples are checked. Needs gdb; run by hand when a workload or a compiler changes.
usage: oracle.py [ID...]"""
import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from kiln import chains, workload  # noqa: E402
from table import ROWS  # noqa: E402

FRAME = re.compile(r"#\d+ +(?:0x([0-9a-f]+) in )?(.*?) \(.*?\)(?: (?:from|at) \S+)?$|#\d+ +(<signal handler called>)")


class Stack:
    def __init__(self, tid, exe, user):
        self.value, self.tid, self.exe, self.user, self.kernel = 1, tid, exe, user, []


def stacks(pid, exe):
    single = len(os.listdir(f"/proc/{pid}/task")) == 1
    command = ["gdb", "-q", "-nx", "-batch", "-p", str(pid), "-ex", "set print frame-arguments none",
               "-ex", "set backtrace past-main on", "-ex", "set backtrace past-entry on", "-ex", "bt" if single else "thread apply all bt"]
    text = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False).stdout
    out, current = [], None
    for line in text.splitlines():
        thread = re.match(r"Thread \d+ .*(?:LWP|process) (\d+)", line)
        frame = FRAME.match(line)
        if thread or (frame and current is None):
            current = Stack(int(thread.group(1)) if thread else pid, exe, [])
            out.append(current)
        if frame and current is not None:
            name = "__restore_rt" if frame.group(3) else frame.group(2)
            # gdb also shows the part of msort_with_tmp that GCC inlined into qsort_r, which is no frame of its own. Without
            # a symbol table, DWARF's name does not tell the part that GCC split off.
            if name.startswith("msort_with_tmp"):
                name = "msort_with_tmp.part.0"
                if current.user and current.user[-1] == name:
                    continue
            current.user.append(name)
    return out


def main():
    wanted = set(sys.argv[1:])
    for row in ROWS:
        if (wanted and row.id not in wanted) or workload.missing(row.name):
            continue
        with workload.Workload(row.name, *row.arguments, seconds=30, where=row.where, symbols=row.symbols) as w:
            samples = []
            for i in range(4):
                time.sleep(0.17)
                try:
                    exe = os.path.basename(os.readlink(f"/proc/{w.pid}/exe")).split(" ")[0]
                except OSError:
                    break
                samples += [s for s in stacks(w.pid, exe) if s.user]
            verdict = chains.check(samples, w.chains)
            print(f"{row.id:20} {verdict.samples:3} stacks, {verdict.right:3} as written", flush=True)
            for _, frames, why in verdict.wrong[:2]:
                print(f"    {why}\n      " + "\n      ".join(frames[:12] + ["..."] + frames[-8:] if len(frames) > 22 else frames))


main()
