# SPDX-License-Identifier: Apache-2.0
"""What frames of runtimes cost: eight web servers in Python and eight in Node.js, each with its own load, and eight programs
that handle requests in each of Ruby, PHP and Perl, sampled with their tracers on and off in turn. With the tracers off, the
same stacks are walked as native stacks, with the same caches: so the time per frame is compared in the same program. With
the tracers off, stacks of LuaJIT, Erlang and .NET end at the first frame of the runtime. So their time per frame is
measured by deep and shallow stacks (depth.py), and their memory with eight programs of their tests."""
import contextlib
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import time

from kiln import agent

import bench_nine
import beam_stacks
import depth
import dotnet_stacks
import luajit_stacks

HERE = os.path.dirname(os.path.realpath(__file__))
PROCESSES, HZ = 8, 97
ALL = ("python", "v8", "hotspot", "dotnet", "beam", "luajit", "ruby", "php", "perl")
CONFIG = """
receivers:
  profiling: {samples_per_second: %(hz)d, reporter_interval: 5s, tracers: "%(tracers)s", process_filter: "^(python|node|MainThread|ruby|php|perl|sh|dash|luajit|beam|erts|dotnet|program|[.]NET)"}
exporters:
  folded_file: {path: "%(path)s"}
extensions:
  health_check: {endpoint: "127.0.0.1:%(port)d"}
service:
  extensions: [health_check]
  pipelines:
    profiles: {receivers: [profiling], exporters: [folded_file]}
"""


@contextlib.contextmanager
def servers(commands, seconds):
    running = [subprocess.Popen([*command, str(seconds)], stdout=subprocess.DEVNULL)
               for command in commands for _ in range(PROCESSES)]
    try:
        time.sleep(5)  # until the code is compiled and the caches are warm
        if any(p.poll() is not None for p in running):
            raise RuntimeError("a web server ended at once")
        yield
    finally:
        for p in running:
            p.kill()
            p.wait()


def frames_a_sample(path):
    samples = frames = 0
    with open(path, encoding="utf-8") as f:
        for line in f:
            stack, _, n = line.rstrip().rpartition(" ")
            samples += int(n)
            frames += int(n) * (stack.count(";") + 1)
    return frames / max(samples, 1)


def programs_of(pid):
    """Number of BPF programs that the process PID has open."""
    n = 0
    for fd in os.listdir(f"/proc/{pid}/fdinfo"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/fdinfo/{fd}", encoding="utf-8") as f:
            n += "prog_tag:" in f.read()
    return n


def measure(tracers, seconds, where):
    """Runs an agent with TRACERS for SECONDS. Returns (BPF nanoseconds per sample, frames per sample, share of complete walks,
    anonymous memory in MiB, samples with missing frames of a runtime, MiB of BPF maps, number of BPF programs)."""
    path, port = os.path.join(where, "stacks.txt"), 13190 + os.getpid() % 500
    with agent.Agent(config=CONFIG % {"hz": HZ, "tracers": tracers, "path": path, "port": port}) as a:
        url = f"http://127.0.0.1:{port}"
        a.wait_ready(url=url + "/readyz")
        time.sleep(6)  # until unwind tables and names are made
        before = agent.metrics(url + "/metrics")
        time.sleep(seconds)
        after = agent.metrics(url + "/metrics")
        with open(f"/proc/{a.process.pid}/status", encoding="utf-8") as f:
            rss = int(re.search(r"RssAnon:\s+(\d+)", f.read())[1]) / 1024
        programs = programs_of(a.process.pid)
        if a.stop(60):  # the agent writes the file when it ends
            raise RuntimeError(f"agent: {a.stderr()[-300:]}")

    def grown(key):
        return after.get(key, 0) - before.get(key, 0)

    walks = grown("kiln_unwind_end_total") - grown('kiln_unwind_end_total{reason="none"}')
    depth = frames_a_sample(path)
    return (grown("kiln_bpf_run_nanoseconds_total") / max(grown("kiln_samples_total"), 1), depth,
            grown('kiln_unwind_end_total{reason="root"}') / max(walks, 1), rss, grown("kiln_runtime_missing_total"),
            after["kiln_bpf_map_bytes"] / 2**20, programs)


# The versions of Debian 12.
SCRIPTS = {"Ruby": ("ruby.sh", "3.1", "/usr/bin/ruby3.1", "web.rb"), "PHP": ("php.sh", "8.2", "/usr/bin/php8.2", "web.php"),
           "Perl": ("perl.sh", "5.36", "/usr/bin/perl", "web.pl")}


def script_command(get, version, program, script):
    """(command that runs SCRIPT, None); (None, reason) when PROGRAM cannot be had here."""
    done = subprocess.run([os.path.join(HERE, "..", "lib", get), version], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, check=False)
    if done.returncode:
        return None, done.stderr.strip()
    root = done.stdout.strip()
    shutil.copy(os.path.join(HERE, script), os.path.join(root, "tmp"))
    return ["env", "LC_ALL=C", "chroot", root, program, "/tmp/" + script], None


def bench(table, quick, chain):
    commands = [[shutil.which(program), os.path.join(HERE, script)]
                for program, script in (("python3", "web.py"), ("node", "web.js"))]
    if all(program for program, _ in commands):
        frames_of(table, quick, f"{PROCESSES} Python + {PROCESSES} Node.js web servers", commands, 2)
    else:
        table.lack("frames of Python and Node.js", "python3 or node is not installed")
    for language, how in SCRIPTS.items():
        command, why = script_command(*how)
        if command:
            frames_of(table, quick, f"{PROCESSES} {language} programs", [command], 1.5)
        else:
            table.lack(f"frames of {language}", why)
    none_runs(table, quick, "Ruby, PHP and Perl", "ruby,php,perl")
    bench_compiled(table, quick, chain)


# ---- LuaJIT, Erlang, .NET

def bench_compiled(table, quick, chain):
    with tempfile.TemporaryDirectory(prefix="kiln-bench-") as directory:
        kinds = {}
        for name, make in (("LuaJIT", deep_luajit), ("Erlang", deep_erlang), (".NET", deep_dotnet)):
            start, why = make(directory)
            if start:
                kinds[name] = start
            else:
                table.lack(f"frames of {name}", why)
        if chain:
            depth.add_rows(table, quick, directory, chain, kinds)
        else:
            table.lack("frames of " + ", ".join(kinds), "kiln-bench-chain is not built")
    for name in kinds:
        memory_of(table, quick, name)
    none_runs(table, quick, "LuaJIT, Erlang and .NET", "luajit,beam,dotnet")


def deep_luajit(_):
    """(function that runs deep.lua, for depth.add_rows(), None); (None, reason) when LuaJIT cannot be had here."""
    root, why = luajit_stacks.interpreter("trixie")
    if why:
        return None, why
    shutil.copy(os.path.join(HERE, "deep.lua"), os.path.join(root, "tmp"))
    return lambda calls: depth.running(["chroot", root, "/usr/bin/luajit", "/tmp/deep.lua", str(calls)], warm=3), None


def deep_erlang(_):
    root, why = beam_stacks.machine("27")
    if why:
        return None, why
    shutil.copy(os.path.join(HERE, "deep.erl"), os.path.join(root, "tmp"))

    def start(calls):
        program = f'{{ok, deep, Code}} = compile:file("/tmp/deep", [binary]), code:load_binary(deep, "", Code), deep:main({calls}).'
        command, env = beam_stacks.erl(root, "-eval", program)
        return depth.running(command, warm=5, env={**os.environ, **env})
    return start, None


def deep_dotnet(directory):
    root, why = dotnet_stacks.runtime("8")
    if why:
        return None, why
    done = subprocess.run([dotnet_stacks.SCRIPT, "compile", os.path.join(HERE, "Deep.cs"), f"{directory}/deep.dll"],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        return None, done.stderr.strip()
    with open(f"{directory}/deep.runtimeconfig.json", "w", encoding="utf-8") as f:
        f.write('{"runtimeOptions": {"framework": {"name": "Microsoft.NETCore.App", "version": "8.0.4"}}}')
    command, env = [f"{root}/dotnet", "exec", f"{directory}/deep.dll"], {**os.environ, **dotnet_stacks.SETTINGS}
    return lambda calls: depth.running([*command, str(calls)], warm=4, env=env), None


def memory_of(table, quick, name):
    """The agent's memory for programs of the test of the runtime NAME, in two versions of it. They use all features of the
    language."""
    starts = bench_nine.RUNTIMES[name]()
    rounds, seconds = (1, 5) if quick else (3, 10)
    got = {"all": [], "native,kernel,go": []}
    with tempfile.TemporaryDirectory(prefix="kiln-bench-") as where, contextlib.ExitStack() as stack:
        for i in range(PROCESSES):
            stack.enter_context(starts[i % len(starts)]())
        time.sleep(10)
        for _ in range(rounds):
            for tracers, rows in got.items():
                rows.append(measure(tracers, seconds, where)[3])
    on, off = map(statistics.median, got.values())
    table.add(f"agent's own memory (RssAnon), {PROCESSES} programs of {name}", on, "MiB")
    table.add("  more of it than with the tracers off", on - off, "MiB", 4)


def none_runs(table, quick, languages, tracers):
    """What TRACERS cost while no program of their languages runs. The load is shells that count."""
    rest = ",".join(sorted({"native", "kernel", "go", *ALL} - set(tracers.split(","))))
    on, off = in_turn(quick, [["sh", "-c", "while :; do i=$((i + 1)); done"]], f"{rest},{tracers}", rest)
    table.add(f"Tracers of {languages} while none runs: BPF time a sample, on / off", on[0] / off[0], "x")
    table.add("  more BPF programs than with the tracers off", on[6] - off[6], "", 0)
    table.add("  more BPF maps", on[5] - off[5], "MiB", 0.1)
    table.add("  more of the agent's own memory (RssAnon)", on[3] - off[3], "MiB")


def in_turn(quick, commands, *tracers):
    """Runs COMMANDS and measures with each of TRACERS in turn; returns for each the medians of the figures of measure()."""
    rounds, seconds = (1, 8) if quick else (3, 20)
    got = {t: [] for t in tracers}
    with tempfile.TemporaryDirectory(prefix="kiln-bench-") as where, \
            servers(commands, rounds * len(tracers) * (seconds + 30) + 60):
        for _ in range(rounds):
            for t, rows in got.items():
                rows.append(measure(t, seconds, where))
    return [[statistics.median(column) for column in zip(*rows)] for rows in got.values()]


def frames_of(table, quick, what, commands, goal):
    on, off = in_turn(quick, commands, "all", "native,kernel,go")
    table.add(f"BPF time a sample, {what}, {HZ} Hz", on[0], "ns")
    table.add("  with the tracers off", off[0], "ns")
    table.add("  frames a sample", on[1], "")
    table.add("  with the tracers off", off[1], "")
    table.add("  BPF time a frame, on / off", on[0] / on[1] / (off[0] / off[1]), "x", goal)
    table.add("  complete walks", on[2] * 100, "%", -99.5)
    table.add("  agent's own memory (RssAnon)", on[3], "MiB")
    table.add("  more of it than with the tracers off, a runtime", (on[3] - off[3]) / len(commands), "MiB", 4)
    table.add("  samples that say that frames are missing", on[4], "")
