# SPDX-License-Identifier: Apache-2.0
"""A new user's first hour: the README's own commands and files, word by word, with a program of the user's.

The tests cut the commands out of the README, so a command there that does not work fails a test. Each test checks that
the functions of the user's program are in the profile with the CPU time that they took. A network namespace of the test
provides the fixed ports and host names. `KILN_PYROSCOPE` is the path of a Pyroscope for the test that needs one (1.18.1
and 2.2.1 were tried). The tests in a cluster are in test_cluster.py."""
import collections
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time

import pytest

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "integration", "agent"))
import parts  # noqa: E402

HZ = 20  # the default rate
SECONDS = 12  # the program's running time
README = (parts.ROOT / "README.md").read_text(encoding="utf-8")


# ---- the README ------------------------------------------------------------------------------------


def blocks(heading):
    """The code blocks below "## HEADING"."""
    section = re.split(r"^## ", README.split(f"\n## {heading}\n", 1)[1], maxsplit=1, flags=re.M)[0]
    return re.findall(r"^```\w*\n(.*?)^```$", section, flags=re.M | re.S)


def told(pattern):
    """The only command of the README, in a code block or in its text, that begins with PATTERN."""
    found = re.findall(rf"(?:^|`)({pattern}[^`\n]*)", README, flags=re.M)
    assert len(found) == 1, (pattern, found)
    return found[0]


# ---- the user --------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def shop(tmp_path_factory):
    """The user's program, built as a user builds one."""
    program = tmp_path_factory.mktemp("shop") / "shop"
    subprocess.run(["cc", "-O2", "-o", program, os.path.join(HERE, "shop.c")], check=True)
    return program


@pytest.fixture
def bin_path(tmp_path):
    """A PATH that has the `kiln-agent` of the README's commands."""
    directory = tmp_path / "bin"
    directory.mkdir()
    os.symlink(parts.agent.binary(), directory / "kiln-agent")
    return f"{directory}:{os.environ['PATH']}"


class Command:
    """Runs a command line of the README in a shell in the sandbox; its output goes to a file."""

    def __init__(self, sandbox, line, directory, path=None):
        self.out = directory / "printed.txt"
        with open(self.out, "wb") as out:
            self.process = subprocess.Popen([*sandbox.prefix, "sh", "-c", f"cd {directory} && exec {line}"],
                                            stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                            env={**os.environ, "PATH": path or os.environ["PATH"]})

    def printed(self):
        return self.out.read_text(encoding="utf-8", errors="replace")

    def profiles(self):
        parts.wait_until("it profiles", lambda: "profiling at" in self.printed() or self.process.poll() is not None)
        assert self.process.poll() is None, self.printed()
        return self

    def end(self):
        """Interrupts the command as Ctrl-C does; it must exit with 0."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        assert self.process.wait(parts.WAIT) == 0, self.printed()

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def sandbox(tmp_path):
    s = parts.Sandbox(tmp_path, ["collector", "pyroscope"])
    yield s
    s.close()


@pytest.fixture
def command(sandbox, tmp_path, bin_path):
    started = []

    def start(line):
        started.append(Command(sandbox, line, tmp_path, bin_path))
        return started[-1]

    yield start
    for c in started:
        c.kill()


class Work:
    """One run of the program. used: {function: CPU seconds}, measured by the program; lasted: its elapsed seconds, about."""

    def __init__(self, shop):
        begin = time.monotonic()
        self.used = json.loads(subprocess.run([shop, str(SECONDS)], check=True, capture_output=True, text=True).stdout)
        self.lasted = max(time.monotonic() - begin, self.total())

    def total(self):
        return sum(self.used.values())


def assert_told(seen, work):
    """SEEN, {function: seconds}, must agree with WORK: the sum and each function within 5 % of the program's CPU time.

    The program never sleeps. If its elapsed time exceeds its CPU time, a hypervisor or another program has taken the CPU
    away. Samples count the hypervisor's time, the thread's CPU clock does not. Next to another program, the number of
    samples that hit this one varies: half of the time that it waited is allowed for."""
    total, longer = work.total(), work.lasted / work.total()
    slack = (0.05 + (longer - 1) / 2) * total
    assert total - slack <= sum(seen.values()) <= (longer + 0.05) * total, (seen, work.used, longer)
    for function, took in work.used.items():
        assert took - slack <= seen.get(function, 0) <= longer * took + 0.05 * total, (seen, work.used, longer)


def by_function(stacks):
    """{function of the program: sum of values}. STACKS: (frames, leaf first; value); stacks without one: "elsewhere"."""
    out = collections.Counter()
    for frames, value in stacks:
        out[next((f for f in frames if f in ("knead", "bake")), "elsewhere")] += value
    return out


def of_otlp(samples):
    """by_function() over decoded OTLP samples of the program; the values are in seconds."""
    mine = [s for s in samples if s["attributes"].get("thread.name") == "shop"]
    return by_function(([f["name"] for f in s["frames"]], s["value"] * s["period"][2] / 1e9) for s in mine)


# ---- the tries -------------------------------------------------------------------------------------


def test_a_flame_graph_of_this_machine(sandbox, command, shop, tmp_path):
    """Two commands of "Try it": the page answers while the agent runs, and the file is there afterwards."""
    assert blocks("Try it")[0].strip() == "./hack/run"
    line = told(r"\./hack/run --duration")
    run = command(line.replace("./hack/run", shlex.quote(str(parts.ROOT / "hack/run")), 1))
    run.profiles()
    url = re.search(r"http://127\.0\.0\.1:\d+/", README)[0]
    page = parts.wait_until("the page", lambda: sandbox.get(url))
    assert "<html" in page
    truth = Work(shop)
    assert run.process.wait(parts.WAIT) == 0, run.printed()
    stacks = [(stack.split(";")[::-1], value) for stack, value in parts.folded(tmp_path / "stacks.txt").items()
              if re.search(r"(^|;)shop(;|$| )", stack)]
    assert stacks, (tmp_path / "stacks.txt").read_text()[:2000]
    assert_told(by_function((frames, value / HZ) for frames, value in stacks), truth)


def test_a_collector(sandbox, command, shop, tmp_path):
    """The command with flags in "Send profiles somewhere"."""
    collector = parts.Collector(tmp_path, parts.components.collector(), grpc=4317, prefix=sandbox.prefix).start()
    try:
        run = command(told("kiln-agent --collection-agent")).profiles()
        truth = Work(shop)
        run.end()
        samples = collector.samples()
    finally:
        collector.kill()
    assert_told(of_otlp(samples), truth)
    for s in samples:
        assert s["resource"]["service.name"] == "shop" and s["resource"]["env"] == "prod"


def test_a_configuration_file(sandbox, command, shop, tmp_path):
    """The configuration file of "Send profiles somewhere": with --check, without and with a receiver, then for real."""
    (tmp_path / "agent.yaml").write_text(blocks("Send profiles somewhere")[1])
    line = told("kiln-agent --config")
    away = command(f"{line} --check")
    away.process.wait(parts.WAIT)
    assert re.search(r"pyroscope:4040.* is not reachable", away.printed()), away.printed()
    collector = parts.Collector(tmp_path, parts.components.collector(), grpc=4040, prefix=sandbox.prefix).start()
    try:
        check = command(f"{line} --check")
        assert check.process.wait(parts.WAIT) == 0, check.printed()
        assert re.search(r"pyroscope:4040.* takes profiles\n +as OTLP v1.11 \(G6\), or as", check.printed()), check.printed()
        run = command(line).profiles()
        truth = Work(shop)
        run.end()
        seen = of_otlp(collector.samples())
    finally:
        collector.kill()
    assert_told(seen, truth)


def pyroscope_arguments(directory):
    """Arguments that keep Pyroscope's data in DIRECTORY and its reports off. 1.x needs a storage, 2.x a metastore."""
    arguments = ["-target=all", "-self-profiling.disable-push=true", "-usage-stats.enabled=false",
                 f"-storage.filesystem.dir={directory}/shared", f"-pyroscopedb.data-path={directory}/data"]
    flags = subprocess.run([os.environ["KILN_PYROSCOPE"], "-help"], capture_output=True, text=True, check=False)
    if "-metastore" not in flags.stdout + flags.stderr:
        return [*arguments, "-storage.backend=filesystem"]
    return [*arguments, "-architecture.storage=v2", f"-metastore.data-dir={directory}/metastore",
            f"-metastore.raft.dir={directory}/raft", f"-metastore.raft.snapshots-dir={directory}/snapshots"]


@pytest.mark.skipif("KILN_PYROSCOPE" not in os.environ, reason="KILN_PYROSCOPE names no Pyroscope")
def test_pyroscope(sandbox, command, shop, tmp_path):
    """The same configuration file with a real Pyroscope, from whose API the functions are queried."""
    (tmp_path / "agent.yaml").write_text(blocks("Send profiles somewhere")[1])
    # Pyroscope wants an interface other than loopback.
    for change in ("link add eth0 type veth peer name eth1", "address add 10.0.0.1/24 dev eth0", "link set eth0 up",
                   "link set eth1 up"):
        assert sandbox.run("ip", *change.split()).returncode == 0, change
    with open(tmp_path / "pyroscope.log", "wb") as log, subprocess.Popen(
            [*sandbox.prefix, os.environ["KILN_PYROSCOPE"], *pyroscope_arguments(tmp_path)], cwd=tmp_path, stdout=log,
            stderr=log) as server:
        try:
            parts.wait_until("Pyroscope", lambda: sandbox.get("http://127.0.0.1:4040/ready"))
            run = command(told("kiln-agent --config")).profiles()
            truth = Work(shop)
            run.end()
            # Pyroscope takes a moment until received profiles can be queried.
            deadline = time.monotonic() + 60
            while sum((seen := queried(sandbox)).values()) < 0.95 * truth.total() and time.monotonic() < deadline:
                time.sleep(0.5)
        finally:
            server.kill()
    assert_told(seen, truth)


def queried(sandbox):
    """{function: seconds}: the self time of each of the program's functions in the flame graph of all profiles."""
    query = "process_cpu:cpu:nanoseconds:cpu:nanoseconds{}"
    done = sandbox.run("curl", "--silent", "--get", "--data-urlencode", f"query={query}", "--data", "from=now-1h",
                       "--data", "until=now", "--data", "max-nodes=65536", "http://127.0.0.1:4040/pyroscope/render")
    out = collections.Counter()
    try:
        graph = json.loads(done.stdout)["flamebearer"]
    except (ValueError, KeyError):
        return out
    for level in graph["levels"]:
        for _, _, own, name in zip(*[iter(level)] * 4, strict=True):
            if graph["names"][name] in ("knead", "bake"):
                out[graph["names"][name]] += own / 1e9
    return out
