#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""JVMs that are killed with -9 and started again at once, with the pid of the one before: what the agent knows of a process
must never be used for the next one. Each JVM runs a class of its own, in a thread with the number of that class in its name,
and two versions of Java take turns, so that frames, names, offsets and addresses of code differ.
usage: test_hotspot_restarts.py   (exit 77: no JVM can be had. With KILN_LONG=1: 100 restarts instead of 6.)"""
import collections
import ctypes
import os
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from kiln import agent, textdump  # noqa: E402
import hotspot_stacks as stacks  # noqa: E402

RESTARTS = 100 if os.environ.get("KILN_LONG") == "1" else 6
SECONDS = 2  # of CPU time, after which a JVM is killed
VERSIONS = [stacks.OLDEST, stacks.NEWEST]
LAST_PID = "/proc/sys/kernel/ns_last_pid"  # a new process gets the next number that is free
PORT = 13590 + os.getpid() % 90
CLASS = """
    static long last{n}(long x) {{ for (int i = 0; i < 5000; i++) x = x * 31 + i; return x; }}
    static long middle{n}(long x) {{ return last{n}(x) + 1; }}
    static long first{n}(long x) {{ return middle{n}(x) + 1; }}
    static long sink;
    public void run() {{ while (true) sink = first{n}(sink); }}
    public static void main(String[] a) {{ new Thread(new R{n}(), "restart {n}").start(); }}
"""
CONFIG = stacks.config().replace("service:\n", f"""extensions:
  health_check: {{endpoint: "127.0.0.1:{PORT}"}}
service:
  extensions: [health_check]
""")


def compile_classes(root, directory):
    os.chmod(directory, 0o755)
    for n in range(RESTARTS):
        with open(f"{directory}/R{n}.java", "w", encoding="utf-8") as f:
            f.write(f"class R{n} implements Runnable {{{CLASS.format(n=n)}}}")
    subprocess.run(stacks.in_root(root, directory, [
        f"/usr/lib/jvm/java-{stacks.OLDEST}-openjdk-amd64/bin/javac", "-nowarn", "-d", "/w",
        *(f"/w/R{n}.java" for n in range(RESTARTS))]), check=True)


def mount_in(roots, directory):
    """Mounts DIRECTORY as /w, /proc and /dev in ROOTS, in a mount namespace that this process and its children have alone."""
    if ctypes.CDLL(None, use_errno=True).unshare(0x20000):  # CLONE_NEWNS
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    for root in roots:
        os.makedirs(root + "/w", exist_ok=True)
        for source, target in (("/proc", "/proc"), ("/dev", "/dev"), (directory, "/w")):
            subprocess.run(["mount", "--bind", source, root + target], check=True)


def start(root, version, n, pid):
    """Starts the JVM number N, with PID unless other new processes take that number again and again. There is one execve()
    from the fork to the JVM, so that nothing but the start of the process tells it from the one before."""
    options = ["-Xint"] if n % 3 == 2 else ["-XX:-Inline"]
    process = None
    for _ in range(20):
        if process:
            process.kill()
            process.wait()
        if pid:
            with open(LAST_PID, "w", encoding="ascii") as f:
                f.write(str(pid - 1))
        process = subprocess.Popen([stacks.java(version), *options, "-cp", "/w", f"R{n}"], stdin=subprocess.DEVNULL,
                                   preexec_fn=lambda: (os.chroot(root), os.chdir("/")))
        if pid in (None, process.pid):
            break
    return process


def run_for(process, seconds):
    """Waits until PROCESS has used SECONDS of CPU time."""
    deadline = time.monotonic() + 60
    while True:
        with open(f"/proc/{process.pid}/stat", encoding="utf-8") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        if (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") >= seconds:
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"a JVM did not run: status {process.returncode}")
        time.sleep(0.05)


def judge(sample):
    """What a sample of a JVM shows: "right", "native", "cut", "before" (the agent had not attached yet), or what is stale."""
    marks = [name for kind, name in sample.frames if kind == "abort-marker"]
    if marks:
        return "before" if set(marks) & set(textdump.before_attaching("hotspot")) else "cut: " + marks[0]
    shown = set(re.findall(r"\bR(\d+)\.", " ".join(name for kind, name in sample.frames if kind == "jvm")))
    if not shown:
        return "native"
    # While main() starts the thread, the name is still that of main's thread.
    mine = re.fullmatch(r"restart (\d+)", sample.comm)
    if mine and shown != {mine[1]} or len(shown) > 1:
        return f"{sample.comm} shows R{sorted(shown)}"
    return "right"


def restart(roots):
    """(pids of the JVMs, which run one after another; the samples of all processes)."""
    pids, pid = [], None
    with agent.Agent(config=CONFIG) as a:
        a.wait_ready(url=f"http://127.0.0.1:{PORT}/readyz")
        for n in range(RESTARTS):
            version = VERSIONS[n % len(VERSIONS)]
            with start(roots[version], version, n, pid) as process:
                pid = process.pid
                pids.append(pid)
                try:
                    run_for(process, SECONDS)
                finally:
                    process.kill()
        if a.stop():
            raise RuntimeError(f"agent: {a.stderr()[-500:]}")
        return pids, textdump.parse(a.stdout().splitlines())


def main():
    roots = {}
    for version in VERSIONS:
        roots[version], why = stacks.root_of(version)
        if not roots[version]:
            print(f"skipped: Java {version}: {why}")
            return 77
    with tempfile.TemporaryDirectory() as directory:
        compile_classes(roots[stacks.OLDEST], directory)
        mount_in(roots.values(), directory)
        pids, samples = restart(roots)
    count, example, seen = collections.Counter(), {}, collections.Counter()
    for s in samples:
        if s.pid in pids and s.exe == "java":
            reason = judge(s)
            count[reason] += s.value
            example[reason] = s
            if reason == "right":
                seen[s.comm] += s.value
    same = sum(a == b for a, b in zip(pids, pids[1:]))
    print(f"{RESTARTS} JVMs, {same} with the pid of the one before: {dict(count)}")
    problems = [f"{n} samples: {reason}: {example[reason].frames}" for reason, n in count.items() if " shows " in reason]
    cut = sum(n for reason, n in count.items() if reason.startswith("cut"))
    if cut > max(0.01 * count.total(), 1):
        problems.append(f"{cut} of {count.total()} samples are cut")
    problems += [f"JVM {n} has {seen[f'restart {n}']} samples" for n in range(RESTARTS) if seen[f"restart {n}"] < 20]
    if same < RESTARTS // 2:
        problems.append("most JVMs have another pid than the one before: the test shows nothing")
    for problem in problems:
        print("FAILED: " + problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
