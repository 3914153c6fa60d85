# SPDX-License-Identifier: Apache-2.0
"""The sample rate of a machine with 128 CPUs on this machine's fewer CPUs: how many samples are lost, and what one sample
costs compared with 97 Hz. Only 40 busy programs with stacks of 31 frames are profiled. The agent is made to believe that
the machine has 128 CPUs (bench_many_cpus.c)."""
import contextlib
import os
import subprocess
import tempfile
import time

from bench_memory import ENDS_WITH_US, Cgroup, make_programs
from kiln import agent

PROGRAMS, DEPTH, CPUS_MEANT = 40, 30, 128
WARM_SECONDS = 15  # until the unwind tables and symbols of all programs are made


@contextlib.contextmanager
def busy_programs():
    with tempfile.TemporaryDirectory(prefix="kiln-bench-") as d:
        make_programs(d, PROGRAMS, ("nest", "nest-static"))
        # A cgroup of their own: so samples of the machine's other programs in the ring buffer are not counted for them.
        cgroup = Cgroup("kiln-bench-rate")
        processes = [subprocess.Popen([*ENDS_WITH_US, "sh", "-c",
                                       'echo $$ > "$1"; shift; exec "$@"', "sh", f"{cgroup.path}/cgroup.procs",
                                       f"{d}/nest-{i}", "3600", str(DEPTH)], stdin=subprocess.DEVNULL,
                                      stdout=subprocess.DEVNULL) for i in range(PROGRAMS)]
        try:
            yield
        finally:
            for p in processes:
                p.kill()
            for p in processes:
                p.wait()
            cgroup.remove()


def change(url, before):
    now = agent.metrics(url)
    return {name: now[name] - before.get(name, 0) for name in now}


def run(table, hz, times, seconds, base, running_agent, preload):
    """Measures an agent at HZ that takes TIMES as many samples (bench_many_cpus.c). BASE: the goal for the cost. Returns the
    cost of a sample in nanoseconds, of the agent and its BPF programs; None when too few samples were taken."""
    prefix = ("env", f"LD_PRELOAD={preload}", f"KILN_BENCH_CPUS={CPUS_MEANT}") if times > 1 else ()
    with running_agent(hz, prefix=prefix, more=", process_filter: '^nest-'") as a:
        url = a.url + "/metrics"
        time.sleep(WARM_SECONDS)
        cpu, at, before = a.cpu_seconds(), time.monotonic(), agent.metrics(url)
        time.sleep(seconds)
        took, cpu, m = time.monotonic() - at, a.cpu_seconds() - cpu, change(url, before)
    samples = m["kiln_samples_total"]
    taken = m["kiln_bpf_runs_total"] / took
    label = f"{hz * times * os.cpu_count()} samples/s" if times > 1 else f"{hz} Hz"
    if not samples or (times > 1 and taken < hz * times * os.cpu_count() * 0.8):
        table.lack(f"{label}, {PROGRAMS} programs", f"only {taken:.0f} timer hits a second: idle CPUs, or slow ones")
        return None
    table.add(f"samples lost of {samples:.0f}, {label}, {PROGRAMS} programs", m["kiln_samples_dropped_total"], "", 0)
    table.add("  incomplete", m["kiln_samples_incomplete_total"], "", 0)
    user, kernel = cpu * 1e9 / samples, m["kiln_bpf_run_nanoseconds_total"] / samples
    table.add("  cost a sample, program and BPF", user + kernel, "ns", base)
    print(f"  (program {user:.0f}, BPF {kernel:.0f} ns; {taken:.0f} timer hits and {samples / took:.0f} samples a second; "
          f"ring full {m['kiln_ring_full_total']:.0f}, copies of stacks left out {m['kiln_detail_shed_total']:.0f})",
          flush=True)
    return user + kernel


def bench(table, quick, running_agent, bpf_stats, preload):
    seconds = 30 if quick else 300
    if not preload:
        table.lack("samples as of 128 CPUs", "libkiln-bench-many-cpus.so is not built")
        return
    times = CPUS_MEANT // os.cpu_count()
    with busy_programs(), bpf_stats():
        base = run(table, 97, 1, seconds, None, running_agent, preload)
        for hz in (20, 99):
            run(table, hz, times, seconds, base, running_agent, preload)
