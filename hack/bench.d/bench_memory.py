# SPDX-License-Identifier: Apache-2.0
"""The agent's memory, as the memory cgroup that it runs in counts it: anonymous memory, and the kernel's memory for it
(BPF maps included). Four loads, each with an agent of its own; for some, also the memory after the load has ended.
Only the processes of the load are profiled, so that the figures do not depend on what else the machine runs."""
import contextlib
import os
import struct
import subprocess
import tempfile
import time

from kiln import agent, workload

LOADS = ((10, 10, 18), (100, 40, 30), (500, 200, 64))
CROWD, CROWD_MAPPINGS, CROWD_CGROUPS, CROWD_GOAL = 2000, 100, 500, 128
GONE_SECONDS = 120
# The kernel kills the load when the benchmark ends, also when the benchmark is killed.
ENDS_WITH_US = ("setpriv", "--pdeathsig", "KILL")


class Cgroup:
    """A cgroup of the memory controller, v1 or v2."""

    def __init__(self, name):
        self.v1 = os.path.exists("/sys/fs/cgroup/memory/memory.stat")
        self.path = os.path.join("/sys/fs/cgroup/memory" if self.v1 else "/sys/fs/cgroup", name)
        os.makedirs(self.path, exist_ok=True)

    def read_mib(self):
        """(anonymous memory, kernel memory) of the cgroup, in MiB."""
        with open(self.path + "/memory.stat", encoding="utf-8") as f:
            stat = {k: int(v) for k, v in (line.split() for line in f)}
        if not self.v1:
            return stat["anon"] / 2 ** 20, stat["kernel"] / 2 ** 20
        with open(self.path + "/memory.kmem.usage_in_bytes", encoding="utf-8") as f:
            return stat["rss"] / 2 ** 20, int(f.read()) / 2 ** 20

    def remove(self):
        for _ in range(100):
            try:
                return os.rmdir(self.path)
            except OSError:
                time.sleep(0.1)


def build_id_at(data):
    """Offset of the bytes of the GNU build id in DATA, an ELF file; None without a build id."""
    at = data.find(b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0")
    return at + 16 if at >= 0 else None


def make_programs(directory, n, names=("tick", "tick-static")):
    """Makes N programs in DIRECTORY: copies of the workloads NAMES in turn, each with another build id."""
    for i in range(n):
        with open(workload.path(names[i % len(names)]), "rb") as f:
            data = bytearray(f.read())
        at = build_id_at(data)
        if at:
            data[at:at + 8] = struct.pack("<Q", i + 1)
        program = f"{directory}/{names[0]}-{i}"
        with open(program, "wb") as f:
            f.write(data)
        os.chmod(program, 0o755)


@contextlib.contextmanager
def many_programs(count, distinct):
    with tempfile.TemporaryDirectory(prefix="kiln-bench-") as d:
        make_programs(d, distinct)
        processes = [subprocess.Popen([*ENDS_WITH_US, f"{d}/tick-{i % distinct}", "3600", str(count)],
                                      stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) for i in range(count)]
        try:
            yield
        finally:
            for p in processes:
                p.kill()
            for p in processes:
                p.wait()


@contextlib.contextmanager
def crowd(helper):
    parent = Cgroup("kiln-bench-crowd")
    cgroups = [Cgroup(f"kiln-bench-crowd/{i}") for i in range(CROWD_CGROUPS)]
    names = "".join(cgroups[i % CROWD_CGROUPS].path + "\n" for i in range(CROWD))
    p = subprocess.Popen([helper, str(CROWD_MAPPINGS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        p.stdin.write(names)
        p.stdin.close()
        if int(p.stdout.readline()) != CROWD:
            raise RuntimeError("kiln-bench-crowd ended early")
        yield
    finally:
        p.kill()
        p.wait()
        for c in cgroups + [parent]:
            c.remove()


@contextlib.contextmanager
def agent_in(cgroup, running_agent):
    with running_agent(97, prefix=("sh", "-c", f'echo $$ > {cgroup.path}/cgroup.procs; exec "$@"', "sh"),
                       more=", process_filter: '^(tick|kiln-bench-crowd)'") as a:
        yield a


def measure(table, label, goal, load, settle, gone, first, running_agent):
    """Measures an agent under LOAD, and again GONE seconds after LOAD has ended (0: not again). FIRST: MiB that the second
    figure is compared with. Returns the memory under LOAD, in MiB."""
    cgroup, stack = Cgroup("kiln-bench-agent"), contextlib.ExitStack()
    try:
        with stack, agent_in(cgroup, running_agent) as a:
            stack.enter_context(load)
            time.sleep(settle)
            known = agent.metrics(a.url + "/metrics")
            anonymous, kernel = cgroup.read_mib()
            table.add(f"agent's memory, {label}", anonymous + kernel, "MiB", goal)
            print(f"  (anonymous {anonymous:.1f}, kernel {kernel:.1f}, of which BPF maps {known.get('kiln_bpf_map_bytes', 0) / 2 ** 20:.1f}; "
                  f"{known.get('kiln_processes', 0):.0f} processes, {known.get('kiln_images_loaded', 0):.0f} images, "
                  f"{known.get('kiln_unwind_table_bytes', 0) / 2 ** 20:.1f} MiB of tables)", flush=True)
            if gone:
                stack.close()
                time.sleep(gone)
                left = cgroup.read_mib()
                table.add(f"  {gone} s after they are gone", sum(left), "MiB", first * 1.2 if first else None)
                print(f"  (anonymous {left[0]:.1f}, kernel {left[1]:.1f})", flush=True)
            return anonymous + kernel
    finally:
        cgroup.remove()


def bench(table, quick, running_agent, helper):
    settle, gone, first = (15, 0, None) if quick else (45, GONE_SECONDS, None)
    for count, distinct, goal in LOADS:
        total = measure(table, f"{count} processes of {distinct} programs", goal, many_programs(count, distinct), settle,
                        gone if first else 0, first, running_agent)
        first = first or total
    label = f"{CROWD} processes of {CROWD_MAPPINGS} mappings in {CROWD_CGROUPS} cgroups"
    if helper:
        measure(table, label, CROWD_GOAL, crowd(helper), settle * 2, gone, first, running_agent)
    else:
        table.lack(f"agent's memory, {label}", "kiln-bench-crowd is not built")
