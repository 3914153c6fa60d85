# SPDX-License-Identifier: Apache-2.0
"""Nine runtimes on one machine at once, each in the oldest and the newest version that can be had here. The programs are
those of the runtimes' tests, which are always busy. Measured: the share of complete stacks, the agent's memory and CPU."""
import contextlib
import os
import sys
import tempfile
import time

from kiln import agent

import bench_memory

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.append(os.path.join(HERE, "..", "..", "tests", "integration", "runtimes"))


def pythons():
    import python_stacks as stacks
    found = list(stacks.interpreters().values())
    return [lambda p=p: stacks.Program(p) for p in {found[0]: 0, found[-1]: 0}] if found else []


def nodes():
    import test_v8
    found = list(test_v8.nodes().values())
    return [lambda n=n: test_v8.Program(n, seconds=3600) for n in (found[0], found[-1])] if found else []


def rubies():
    import ruby_stacks as stacks
    return [lambda v=v, r=r: stacks.Program(v, r) for v, r in roots(stacks.root_of, "2.7", "3.4")]


def phps():
    import php_stacks as stacks
    return [lambda v=v, r=r: stacks.Program(v, r, php=stacks.options(v)) for v, r in roots(stacks.root_of, "7.4", "8.6")]


def perls():
    import perl_stacks as stacks
    return [lambda r=r: stacks.Program(root=r) for _, r in roots(stacks.interpreter, "5.32", "5.44")]


def luajits():
    import luajit_stacks as stacks
    return [lambda r=r: stacks.Program(r) for _, r in roots(stacks.interpreter, "bookworm", "forky")]


def beams():
    import beam_stacks as stacks
    return [lambda r=r: stacks.Program(r) for _, r in roots(stacks.machine, "25", "29")]


def dotnets():
    import dotnet_stacks as stacks
    work, _ = stacks.compile_work()
    return [lambda v=v, r=r: stacks.Program(v, r, work) for v, r in roots(stacks.runtime, "8", "10")] if work else []


def javas():
    import hotspot_stacks as stacks
    found = dict(roots(stacks.root_of, stacks.OLDEST, stacks.NEWEST))
    if not found:
        return []
    directory = tempfile.TemporaryDirectory(prefix="kiln-bench-java-")  # removed when no program below refers to it any more
    os.chmod(directory.name, 0o755)
    stacks.compile_classes(found, directory.name)
    return [lambda v=v, r=r: stacks.Program(v, r, directory.name, ["calls", "lambdas", "exceptions"], seconds=3600)
            for v, r in found.items()]


RUNTIMES = {"Python": pythons, "Node.js": nodes, "Ruby": rubies, "PHP": phps, "Perl": perls, "LuaJIT": luajits,
            "Erlang": beams, ".NET": dotnets, "Java": javas}


def roots(get, *versions):
    """[(version, its root directory)] of those of VERSIONS that can be had here. GET(version): (directory or None, ...)."""
    found = [(version, get(version)[0]) for version in versions]
    return [(version, root) for version, root in found if root]


@contextlib.contextmanager
def in_cgroup(running_agent, hz):
    """Runs an agent at HZ in a memory cgroup of its own; yields (agent, cgroup)."""
    cgroup = bench_memory.Cgroup("kiln-bench-nine")
    try:
        with running_agent(hz, prefix=("sh", "-c", f'echo $$ > {cgroup.path}/cgroup.procs; exec "$@"', "sh")) as a:
            yield a, cgroup
    finally:
        cgroup.remove()


def bench(table, quick, running_agent, bpf_stats, cpus):
    with contextlib.ExitStack() as stack:
        programs = {name: make() for name, make in RUNTIMES.items()}  # all are fetched before the first one runs
        n = {}
        for name, starts in programs.items():
            n[name] = len([stack.enter_context(start()) for start in starts])
            if n[name] < 2:
                table.lack(f"two versions of {name} at once", f"{n[name]} can be had")
        time.sleep(20)
        what = f"{sum(n.values())} programs of {sum(map(bool, n.values()))} runtimes"
        whole(table, what, 60 if quick else 600, running_agent)
        cost(table, what, 30 if quick else 120, running_agent, bpf_stats, cpus)


def whole(table, what, seconds, running_agent):
    with in_cgroup(running_agent, 97) as (a, cgroup):
        time.sleep(30)  # until unwind tables and names are made
        before = agent.metrics(a.url + "/metrics")
        time.sleep(seconds)
        after = agent.metrics(a.url + "/metrics")
        memory = sum(cgroup.read_mib())
    grown = {key: value - before.get(key, 0) for key, value in after.items()}
    walks = grown["kiln_unwind_end_total"] - grown['kiln_unwind_end_total{reason="none"}']
    table.add(f"whole stacks, {what}, 97 Hz, {seconds} s",
              grown['kiln_unwind_end_total{reason="root"}'] / max(walks, 1) * 100, "%", -99.5)
    table.add("  samples", grown["kiln_samples_total"], "")
    table.add("  that say that frames of a runtime are missing", grown.get("kiln_runtime_missing_total", 0), "",
              grown["kiln_samples_total"] * 0.005)
    table.add("  that were lost", grown.get("kiln_samples_dropped_total", 0), "", 0)
    table.add("  agent's memory", memory, "MiB", 64)


def cost(table, what, seconds, running_agent, bpf_stats, cpus):
    with bpf_stats(), running_agent(20) as a:
        time.sleep(30)
        cpu, at, before = a.cpu_seconds(), time.monotonic(), agent.metrics(a.url + "/metrics")
        time.sleep(seconds)
        span, used = time.monotonic() - at, a.cpu_seconds() - cpu
        after = agent.metrics(a.url + "/metrics")
    key = "kiln_bpf_run_nanoseconds_total"
    used += (after.get(key, 0) - before.get(key, 0)) / 1e9
    table.add(f"agent and its BPF, {what}, 20 Hz, of all CPUs", used / span / cpus * 100, "%", 0.5)
