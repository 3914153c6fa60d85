# SPDX-License-Identifier: Apache-2.0
"""The agent's memory and file descriptors stay bounded while processes come and go, and are released afterwards."""
import os
import shutil
import stat
import subprocess
import time

import pytest

from parts import LONG, SANITIZER, agent as kiln, free_port, http_get, wait_until, workload

SECONDS = 60 if LONG else 20
SLACK = 8192 if SANITIZER else 4096  # KiB by which the allocator's memory may vary
CONFIG = """
receivers:
  profiling: {samples_per_second: 97, reporter_interval: 1s}
exporters:
  debug: {ignore_profiles_without_container_id: false, output: /dev/null}
extensions:
  health_check: {endpoint: "127.0.0.1:%d"}
service:
  extensions: [health_check]
  pipelines:
    profiles: {receivers: [profiling], exporters: [debug]}
"""


def start(agent, *arguments):
    port = free_port()
    a = agent(*arguments, config=CONFIG % port)
    a.wait_ready(seconds=120, url=f"http://127.0.0.1:{port}/readyz")
    return a, f"http://127.0.0.1:{port}/metrics"


def descriptors(a):
    """The agent's descriptors: (number of those not of regular files, {(device, inode): number of descriptors})."""
    other, files = 0, {}
    for name in os.listdir(f"/proc/{a.pid}/fd"):
        try:
            st = os.stat(f"/proc/{a.pid}/fd/{name}")
        except OSError:
            continue  # the agent has closed it in the meantime
        if stat.S_ISREG(st.st_mode):
            key = st.st_dev, st.st_ino
            files[key] = files.get(key, 0) + 1
        else:
            other += 1
    return other, files


@pytest.mark.skipif(SANITIZER == "thread", reason="the shadow's memory is not the agent's")
def test_a_storm_of_short_processes_leaves_nothing(agent):
    a, url = start(agent, "--process-filter", "^wl-")
    with workload.Workload("storm", "DIR", 200, seconds=SECONDS) as storm:
        rss, others, known = [], [], []
        while storm.process.poll() is None:
            rss.append(a.rss_kib())
            other, files = descriptors(a)
            others.append(other)
            # All processes of one program share its descriptors.
            assert not [n for n in files.values() if n > 4], files
            known.append(kiln.metrics(url)["kiln_processes"])
            time.sleep(0.5)
        said = storm.rest()[-1]
    m = kiln.metrics(url)
    assert said["failed"] == 0 and said["started"] > 60 * SECONDS, said
    half = len(rss) // 2
    warm, late = max(rss[half // 2:half]), max(rss[half:])
    print(f"{said['started']} processes; RSS {rss[0]} first, {warm} at half time, {late} KiB at the end; "
          f"{len(files)} files and {max(others)} other descriptors open; {max(known):.0f} processes known at once")
    assert late <= warm + SLACK, rss
    assert max(others) <= others[0] + 16, others
    # Images of four programs and their libraries, not one image for each process.
    assert m["kiln_images_loaded"] < 64
    assert m["kiln_samples_total"] > 0
    assert m["kiln_samples_dropped_total"] == 0
    assert a.stop() == 0, a.stderr()


@pytest.mark.long
def test_what_is_gone_is_forgotten(agent, tmp_path):
    """Stacks and unwind tables of programs that have ended are released some time after their last sample."""
    # A unique name prefix: the process filter excludes all programs but the test's.
    mine = f"kt{os.getpid()}"
    a, url = start(agent, "--process-filter", f"^{mine}")
    copies = [shutil.copy(workload.path(name), tmp_path / f"{mine}-{name}") for name in ("nest", "cxx", "qsort", "threads")]
    running = [subprocess.Popen([c, "8"], stdout=subprocess.DEVNULL) for c in copies for _ in range(5)]
    time.sleep(6)
    full = kiln.metrics(url)
    assert [p.wait(60) for p in running] == [0] * len(running)
    _, busy_files = descriptors(a)
    assert full["kiln_stacks_interned"] > 0 and full["kiln_images_loaded"] >= 4

    def released():
        now = kiln.metrics(url)
        # The four programs' images are gone; the C library, which other processes use too, may stay.
        few = max(full["kiln_images_loaded"] - 4, 2)
        return now if now["kiln_stacks_interned"] == 0 and now["kiln_images_loaded"] <= few else None

    # Stacks are released a minute after their last sample, unwind tables a minute after the last stack.
    now = wait_until("everything is given back", released, 240)
    print({n: (full[n], now[n]) for n in ("kiln_images_loaded", "kiln_unwind_table_bytes", "kiln_stacks_interned")},
          "files", len(busy_files), len(descriptors(a)[1]))
    assert http_get(url)[0] == 200
    assert a.stop() == 0, a.stderr()
