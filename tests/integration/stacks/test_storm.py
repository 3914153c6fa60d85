#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""200 short-lived processes a second: the agent's memory does not grow, and no process is shown with functions of an earlier
process that had the same pid or addresses. Runs for 15 s, with KILN_LONG=1 for 60 s."""
import os
import re
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from kiln import agent, chains, workload  # noqa: E402

SECONDS = 60 if os.environ.get("KILN_LONG") == "1" else 15
NEW_MEMORY = {"setup_arg_pages", "elf_load", "elf_map"}  # kernel functions of exec that set up the new memory
NO_STACK = {"load_elf_binary", "do_exit"}


def main():
    problems, rss = [], []
    system = chains.Names("x").libraries(["libc.so.6", "ld-linux-x86-64.so.2"])
    ok = re.compile(r"main|_start|_init|__do_global_dtors_aux|frame_dummy|register_tm_clones|deregister_tm_clones"
                    r"|_dl_start_user|[^ ]+@plt|\[unknown\]|\[incomplete: [a-z ]+\]|call_fini|\[vdso\]\+0x[0-9a-f]+|__vdso_.*")
    with agent.Agent("--stdout", "--samples-per-second", 97, "--reporter-interval", "1s",
                     "--duration", f"{SECONDS + 8}s") as a:
        time.sleep(3)
        with workload.Workload("storm", "DIR", 200, seconds=SECONDS) as w:
            while w.process.poll() is None and a.process.poll() is None:
                rss.append(a.rss_kib())
                time.sleep(1)
            said = w.rest()[-1]
        status = a.wait(60)
        if status:
            print(f"agent: exit {status}: {a.stderr().strip()[-800:]}")
            return 1
        samples = [s for s in a.samples() if (s.exe or "").startswith("wl-short-")]
    value = sum(s.value for s in samples)
    worked = full = cut = between = gone = 0
    for sample in samples:
        name = sample.exe.removeprefix("wl-short-")
        program = re.compile(re.escape(sample.exe) + r"\+0x[0-9a-f]+")
        mine = {f"{name}_leaf", f"{name}_work", f"{name}_unused"}
        for frame in sample.user:
            if not (frame in mine or ok.fullmatch(frame) or system(frame) or program.fullmatch(frame)):
                problems.append(f"{sample.exe} (pid {sample.pid}) is shown in {frame}: {sample.user}")
                break
        kernel = {name for kind, name in sample.frames if kind == "kernel"}
        if sample.user and kernel & NEW_MEMORY:
            problems.append(f"{sample.exe} has a user's stack before exec is done: {sample.frames}")
        # A process that lives 3 ms may end before the agent has read it; its stack must be marked so. In exec, and after exit
        # has released the memory, a process has no user stack.
        if kernel & NO_STACK and not sample.user:
            between += sample.value
            continue
        if sample.user and sample.user[-1] == "[incomplete: process not known]":
            gone += sample.value
            continue
        cut += sample.value * (not sample.user or sample.user[-1].startswith("[incomplete"))
        if f"{name}_leaf" in sample.user:
            worked += sample.value
            full += sample.value * (sample.user[-1] == "_start" and f"{name}_work" in sample.user)
    third = max(len(rss) // 3, 1)
    # Memory that the allocator keeps varies by megabytes; a leak only grows. So compare medians.
    early, late = statistics.median(rss[third:2 * third] or rss), statistics.median(rss[2 * third:] or rss)
    print(f"{said['started']} processes in {SECONDS} s, {said['failed']} failed to start; {value} samples of them,"
          f" {worked} in their own work, {full} of those up to _start; {between} in exec and exit; {gone} of processes that were gone before they were read, {cut} others incomplete,"
          " all marked so")
    print(f"agent RSS: {rss[0]} KiB first, {early} KiB at half time, {late} KiB at the end")
    # The rate of new processes depends on the machine; below this it is no storm.
    if said["started"] < 40 * SECONDS:
        problems.append("the machine was too slow for the storm")
    # The number of samples depends on the machine: processes that live 3 ms and share a CPU are seldom running when its
    # timer ticks. The shares that are checked below need enough samples.
    if worked < 20:
        problems.append(f"only {worked} samples of the processes' own work")
    if full < 0.9 * worked:
        problems.append(f"{full} of {worked} stacks of short-lived processes are complete")
    if gone > 0.25 * value:
        problems.append(f"{gone} of {value} samples are of processes that were not read in time")
    if cut > 0.15 * value:
        problems.append(f"{cut} of {value} samples are incomplete")
    if late > early * 1.05 + 1024:
        problems.append(f"the agent grew from {early} to {late} KiB")
    for problem in problems[:10]:
        print(f"FAILED: {problem}")
    return 1 if problems else 0


sys.exit(main())
