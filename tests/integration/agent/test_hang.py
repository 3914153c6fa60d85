# SPDX-License-Identifier: Apache-2.0
"""A filesystem that never answers leaves only the processes of its own programs without names: the agent stays healthy and
names all others. Once the filesystem answers, its processes are named too. It is silent for 15 s (5 minutes with
KILN_LONG=1)."""
import os
import shutil
import subprocess
import sys
import time

import pytest

from parts import LONG, ROOT, agent as kiln, free_port, http_get, wait_until, workload

SILENCE = 300 if LONG else 15  # seconds
PROGRAMS = 5
BOUND = 2.0  # seconds; /healthz must answer within
CONFIG = """
receivers:
  profiling: {samples_per_second: 49, reporter_interval: 1s}
exporters:
  debug: {ignore_profiles_without_container_id: false}
extensions:
  health_check: {endpoint: "127.0.0.1:%d"}
service:
  extensions: [health_check]
  pipelines:
    profiles: {receivers: [profiling], exporters: [debug]}
"""


class SilentFilesystem:
    """A mounted silent_fuse.py with the programs silent-0, silent-1, ..., which are copies of the workload NAME. HOLE: bytes
    that each file is larger, without being larger on the disk."""

    def __init__(self, directory, name="nest-static", hole=0):
        source, self.mount = directory / "source", directory / "mount"
        source.mkdir()
        self.mount.mkdir()
        for i in range(PROGRAMS):
            shutil.copy(workload.path(name), source / f"silent-{i}")
            # Append bytes that no header refers to: only the agent reads them, so only the agent can hang on them.
            with open(source / f"silent-{i}", "ab") as f:
                f.truncate(f.tell() + hole)
                f.write(os.urandom(2 << 20))
        self.server = subprocess.Popen(
            [sys.executable, ROOT / "tests/integration/lib/kiln/silent_fuse.py", source, self.mount],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.hear("mounted")

    def hear(self, word):
        assert self.server.stdout.readline() == word + "\n", f"silent_fuse.py does not say {word}"

    def tell(self, word):
        self.server.stdin.write(word + "\n")
        self.server.stdin.flush()
        self.hear(word)

    def close(self):
        self.server.stdin.close()
        self.server.wait()
        self.server.stdout.close()


@pytest.fixture
def silent(tmp_path, request):
    if not os.path.exists("/dev/fuse"):
        pytest.skip("no /dev/fuse")
    fs = SilentFilesystem(tmp_path, **getattr(request, "param", {}))
    yield fs
    fs.close()


@pytest.fixture
def programs(silent, request):
    arguments = getattr(request, "param", [])
    started = [subprocess.Popen([silent.mount / f"silent-{i}", "3600", *arguments], stdout=subprocess.PIPE) for i in range(PROGRAMS)]
    for p in started:
        assert p.stdout.readline(), "a program of the mount ended at once"
    time.sleep(1)  # until the programs have read the pages that they need
    yield started
    for p in started:
        p.kill()
        p.wait()
        p.stdout.close()


def is_unnamed(sample):
    return any(f.startswith("[incomplete") or f.startswith("[unknown") or "+0x" in f for f in sample.user if "vdso" not in f)


def look_at_health(url, seconds, sample):
    """Requests URL for SECONDS and calls SAMPLE after each answer; the sorted response times in seconds."""
    took, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        begun = time.monotonic()
        assert http_get(url)[0] == 200
        took.append(time.monotonic() - begun)
        sample()
        time.sleep(0.05)
    return sorted(took)


def all_named(samples):
    """Whether every program of the filesystem has a complete, named stack."""
    complete = {s.pid for s in samples if (s.exe or "").startswith("silent-") and not is_unnamed(s) and s.user}
    return len(complete) == PROGRAMS


def test_a_file_that_hangs_in_its_middle_holds_up_no_other(agent, silent, programs):
    """Start and end of the files can be read; only reads of their middle hang."""
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    silent.tell("hang-middle")
    a = agent(config=CONFIG % port)
    a.wait_ready(url=base + "/readyz")
    took = look_at_health(base + "/healthz", 3, lambda: None)
    with workload.Workload("nest", seconds=3600) as healthy:
        took += look_at_health(base + "/healthz", SILENCE, lambda: None)
        said = a.samples()
        metrics = kiln.metrics(base + "/metrics")
    others = [s for s in said if s.pid == healthy.pid]
    unnamed = [s for s in others if is_unnamed(s) or not s.user]
    print(f"{SILENCE} s: /healthz took {max(took) * 1000:.1f} ms at most; {sum(s.value for s in others)} samples of the other"
          f" process, {len(unnamed)} stacks of it incomplete; {metrics['kiln_windows_late_total']:.0f} windows late")
    silent.tell("answer")
    wait_until("the programs of the filesystem have their names", lambda: all_named(a.samples()))
    assert a.stop() == 0, a.stderr()
    assert max(took) < BOUND
    assert sum(s.value for s in others) > SILENCE, "the other process was not sampled, or not named"
    assert not unnamed, unnamed[:3]


@pytest.mark.parametrize("silent, programs", [({"name": "qsort-debuglink"}, ["30", "3"])], indirect=True)
def test_nothing_is_looked_for_beside_a_file_that_may_hang(agent, silent, programs):
    """The programs' files are read before the filesystem hangs. Each has a debug link to a file beside it, which the agent
    must not open once the filesystem hangs."""
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    a = agent(config=(CONFIG % port).replace("reporter_interval: 1s", "reporter_interval: 5s"))
    a.wait_ready(url=base + "/healthz")  # /healthz answers before the first window is exported
    wait_until("the programs' files were read",
               lambda: kiln.metrics(base + "/metrics")['kiln_images_remote_total{read="copy"}'] >= PROGRAMS)
    assert not [s for s in a.samples() if s.pid in [p.pid for p in programs]], "they were named before they hung"
    silent.tell("hang")
    with workload.Workload("nest", seconds=3600) as healthy:
        took = look_at_health(base + "/healthz", SILENCE, lambda: None)
        said = a.samples()
    silent.tell("answer")
    assert a.stop() == 0, a.stderr()
    others = [s for s in said if s.pid == healthy.pid]
    unnamed = [s for s in others if is_unnamed(s) or not s.user]
    print(f"{SILENCE} s: /healthz took {max(took) * 1000:.1f} ms at most; {sum(s.value for s in others)} samples of the other"
          f" process, {len(unnamed)} stacks of it incomplete")
    assert max(took) < BOUND
    assert others, "nothing was named any more"
    assert not unnamed, unnamed[:3]
    assert {s.exe for s in said if s.pid in [p.pid for p in programs]} == {f"silent-{i}" for i in range(PROGRAMS)}


@pytest.mark.parametrize("silent", [{"hole": 80 << 20}], indirect=True)
def test_a_file_too_large_for_a_copy_holds_up_no_other(agent, silent, programs):
    """The programs' files are opened before the filesystem hangs. Each is larger than all copies together may be."""
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    a = agent(config=(CONFIG % port).replace("reporter_interval: 1s", "reporter_interval: 5s"))
    a.wait_ready(url=base + "/healthz")  # /healthz answers before the first window is exported
    wait_until("the programs' files were opened", lambda: kiln.metrics(base + "/metrics")["kiln_images_remote_total"] >= PROGRAMS)
    assert not [s for s in a.samples() if s.pid in [p.pid for p in programs]], "they were named before they hung"
    silent.tell("hang")
    with workload.Workload("nest", seconds=3600) as healthy:
        took = look_at_health(base + "/healthz", SILENCE, lambda: None)
        said = a.samples()
    silent.tell("answer")
    assert a.stop() == 0, a.stderr()
    others = [s for s in said if s.pid == healthy.pid]
    unnamed = [s for s in others if is_unnamed(s) or not s.user]
    mine = [s for s in said if s.pid in [p.pid for p in programs]]
    print(f"{SILENCE} s: /healthz took {max(took) * 1000:.1f} ms at most; {sum(s.value for s in others)} samples of the other"
          f" process, {len(unnamed)} stacks of it incomplete; {sum(s.value for s in mine)} samples of the hung ones")
    assert max(took) < BOUND
    assert others, "nothing was named any more"
    assert not unnamed, unnamed[:3]
    assert {s.exe for s in mine} == {f"silent-{i}" for i in range(PROGRAMS)}
    # Of such a file only the headers are known: its frames are offsets in it, and its stacks end at the first of them.
    assert [s for s in mine if s.user and s.user[0].startswith(f"{s.exe}+0x")], mine[:3]
    assert all(f.startswith(("silent-", "[incomplete")) for s in mine for f in s.user), mine[:3]


def test_a_filesystem_that_hangs_loses_its_own_names_only(agent, silent, programs):
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    threads = []
    silent.tell("hang")
    with workload.Workload("nest", seconds=3600) as healthy:
        a = agent(config=CONFIG % port)
        a.wait_ready(url=base + "/readyz")
        took = look_at_health(base + "/healthz", SILENCE, lambda: threads.append(
            len(os.listdir(f"/proc/{a.pid}/task"))))
        metrics = kiln.metrics(base + "/metrics")
        silent.tell("answer")

        # The time between two tries doubles while nothing answers, up to a minute.
        wait_until("the programs of the filesystem have their names", lambda: all_named(a.samples()))
        assert a.stop() == 0, a.stderr()
        samples = a.samples()
    others = [s for s in samples if s.pid == healthy.pid]
    unnamed = [s for s in others if is_unnamed(s) or not s.user]
    mine = [s for s in samples if s.pid in [p.pid for p in programs]]
    cut = sum(s.value for s in mine if "[incomplete: process cannot be read]" in s.user)
    print(f"{SILENCE} s of silence: /healthz took {took[-1] * 1000:.1f} ms at most, {took[len(took) // 2] * 1000:.1f} ms in the middle"
          f" ({len(took)} times); {max(threads)} threads; {sum(s.value for s in others)} samples of the other process,"
          f" {len(unnamed)} stacks of it incomplete; {sum(s.value for s in mine)} samples of the hung ones, {cut} with their leaf only;"
          f" ring full {metrics['kiln_ring_full_total']:.0f} times, {metrics['kiln_discovery_late_total']:.0f} readings late")
    assert took[-1] < BOUND
    assert metrics["kiln_ring_full_total"] == 0
    assert metrics["kiln_discovery_late_total"] >= 1, "the filesystem did not hang"
    assert sum(s.value for s in others) > SILENCE, "the other process was not sampled"
    assert not unnamed, unnamed[:3]
    assert {s.exe for s in mine} == {f"silent-{i}" for i in range(PROGRAMS)}
    assert cut > SILENCE, "what hangs is counted too"
    # The hung filesystem blocks a few threads in all, not one more with each retry.
    assert max(threads) - min(threads) <= 6


@pytest.mark.parametrize("over, name, arguments", [("/usr/lib/debug", "qsort-stripped", ["30", "3"]), ("/tmp", "jit", [])])
def test_a_mount_of_a_container_that_hangs_costs_nobody_else_his_names(agent, silent, over, name, arguments):
    """The program is a local file, but its debug file or perf map would be in the hung mount."""
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    program = subprocess.Popen(["unshare", "--mount", "--propagation", "private", workload.path(name), "3600", *arguments],
                               stdout=subprocess.PIPE)
    try:
        assert program.stdout.readline()
        subprocess.run(["nsenter", f"--target={program.pid}", "--mount", "mount", "--bind", silent.mount, over], check=True)
        silent.tell("hang")
        a = agent(config=CONFIG % port)
        a.wait_ready(url=base + "/healthz")
        with workload.Workload("nest", seconds=3600) as healthy:
            took = look_at_health(base + "/healthz", SILENCE, lambda: None)
            said = a.samples()
            metrics = kiln.metrics(base + "/metrics")
        silent.tell("answer")
        assert a.stop() == 0, a.stderr()
    finally:
        program.kill()
        program.wait()
        program.stdout.close()
    others = [s for s in said if s.pid == healthy.pid]
    unnamed = [s for s in others if is_unnamed(s) or not s.user]
    print(f"{SILENCE} s: /healthz took {max(took) * 1000:.1f} ms at most; {sum(s.value for s in others)} samples of the other"
          f" process, {len(unnamed)} stacks of it incomplete; {metrics['kiln_windows_late_total']:.0f} windows late")
    assert metrics["kiln_foreign_files_total"] >= 1, "nothing was looked for in the mount"
    assert max(took) < BOUND
    assert sum(s.value for s in others) > SILENCE, "the other process was not named any more"
    assert not unnamed, unnamed[:3]
    assert [s for s in said if s.pid == program.pid], "the program itself is counted"
