#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A runtime is one folder: the toy runtime, which no file outside of this folder names, is walked, named, switched on and off
and counted like the agent's own runtimes, between native frames and in one process with another runtime."""
import contextlib
import glob
import json
import os
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))
from kiln import agent  # noqa: E402

PROGRAM = os.environ["TOY_PROGRAM"]
PORT = 13900 + os.getpid() % 90
COMPLETE = 0.95
# The expected frames, leaf first; frames above the first and below the last are not checked.
CALLS = ["leaf", "inner", "toy_run", "run_inner", "bundled", "bridge", "middle", "outer", "toy_run", "main"]
LINES = {"leaf": 9, "inner": 5, "bundled": 11, "middle": 7, "outer": 3}


def config(more=""):
    return f"""
receivers: {{profiling: {{samples_per_second: 97, reporter_interval: 1s, {more}}}}}
extensions: {{health_check: {{endpoint: "127.0.0.1:{PORT}"}}}}
exporters: {{debug: {{export_function_file: true, ignore_profiles_without_container_id: false}}}}
service:
  extensions: [health_check]
  pipelines: {{profiles: {{receivers: [profiling], exporters: [debug]}}}}
"""


@contextlib.contextmanager
def program(*arguments):
    with subprocess.Popen([PROGRAM, *arguments], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as p:
        try:
            if p.stdout.readline() != "ready\n":
                raise RuntimeError(f"{PROGRAM} ended: {p.wait()}")
            yield p.pid
        finally:
            p.kill()


def run(pid, more="", marks=()):
    """Profiles PID: (the samples of 4 s, counted once all functions MARKS have been seen; the metrics at the end)."""
    with agent.Agent("--pid", pid, config=config(more)) as a:
        deadline = time.monotonic() + 60
        while not all(f"Function: {mark}" in a.stdout() for mark in marks) and time.monotonic() < deadline:
            time.sleep(0.5)
        before = len(a.samples())
        time.sleep(4)
        counted = agent.metrics(f"http://127.0.0.1:{PORT}/metrics")
        if a.stop():
            raise RuntimeError(a.stderr()[-500:])
        return a.samples()[before:], counted


def has_calls(sample):
    """Whether SAMPLE has the frames CALLS in a row, with the lines LINES."""
    found = [(name, line) for (_, name), (_, line) in zip(sample.frames, sample.places)]
    names = [name for name, _ in found]
    for i in range(len(names) - len(CALLS) + 1):
        if names[i:i + len(CALLS)] == CALLS:
            return all(LINES.get(name, line) == line for name, line in found[i:i + len(CALLS)])
    return False


def share(samples, good):
    total = sum(s.value for s in samples)
    assert total >= 50, f"{total} samples are too few"
    right = sum(s.value for s in samples if good(s))
    if right < COMPLETE * total:
        print(json.dumps(next(s.frames for s in samples if not good(s)), indent=1))
    return right / total


def frames_come_out_between_native_ones():
    with program() as pid:
        samples, counted = run(pid, marks=["leaf"])
    whole = share(samples, lambda s: has_calls(s) and s.user[0] != "leaf" and "work" in s.user)
    print(f"{len(samples)} stacks, {whole:.1%} as they are")
    assert whole >= COMPLETE
    assert counted['kiln_runtime_frames_total{runtime="toy"}'] > 0
    assert counted['kiln_runtime_frames_total{runtime="python"}'] == 0


def off_means_off():
    for more in ('tracers: "native,kernel,python"', "interpreters: {toy: {disabled: true}}"):
        with program() as pid:
            samples, counted = run(pid, more, marks=["bridge"])
        # Without the walker no frame is between toy_run and bridge(), and none is reported missing; compiled code has no name.
        whole = share(samples, lambda s: re.search(r" toy_run run_inner \[jit\] bridge toy_run main ", " ".join(["", *s.user, ""])))
        print(f"off: {whole:.1%} as they are")
        assert whole >= COMPLETE
        assert not set(LINES) & {name for s in samples for name in s.user}
        assert counted['kiln_runtime_frames_total{runtime="toy"}'] == 0


def two_runtimes_in_one_process():
    found = sorted(glob.glob("/usr/lib/*/libpython3.*.so.1.0"))
    if not found:
        print("skipped: no libpython")
        return
    with program(found[-1]) as pid:
        samples, counted = run(pid, marks=["leaf", "burn"])
    whole = share(samples, lambda s: has_calls(s) and ("cpython", "burn") in s.frames and
                  s.user.index("burn") < s.user.index("work") < s.user.index("leaf"))
    print(f"with Python: {whole:.1%} as they are")
    assert whole >= COMPLETE
    assert counted['kiln_runtime_frames_total{runtime="python"}'] > 0


def no_other_file_names_it():
    """No file of the agent, its BPF programs, the build or its lists names the toy. (A comment may contain the word.)"""
    top = os.path.join(HERE, "..", "..", "..")
    names = ["toy_ops", "toy_walk", "TOY_ID", "runtime(toy", "integration/toy", "kiln_toy"]
    done = subprocess.run(["grep", "-rnFI", *(f"-e{n}" for n in names), "agent", "bpf", "cmake", "lib", "crds", "operator",
                           "CMakeLists.txt", "tests", f"--exclude-dir={os.path.basename(HERE)}"], cwd=top, stdout=subprocess.PIPE,
                          text=True, check=False)
    assert done.returncode == 1, done.stdout


if __name__ == "__main__":
    if os.geteuid():
        print("skipped: not root")
        sys.exit(77)
    no_other_file_names_it()
    frames_come_out_between_native_ones()
    off_means_off()
    two_runtimes_in_one_process()
