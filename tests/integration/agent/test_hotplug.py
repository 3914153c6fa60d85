# SPDX-License-Identifier: Apache-2.0
"""A CPU that comes online while the agent runs is sampled. What else happens to CPUs is in tests/bpf/test_timers.c."""
import os
import pathlib
import time

import pytest

from parts import profiling, workload

ONLINE = pathlib.Path("/sys/devices/system/cpu/cpu1/online")
ENOUGH = 50  # more samples than the program can have on the other CPU before it is bound to CPU 1


def set_online(on):
    try:
        ONLINE.write_text("1" if on else "0", encoding="ascii")
    except OSError:
        return False
    return True


def test_a_cpu_that_comes_online_is_sampled(agent):
    if not set_online(False):
        pytest.skip("CPU 1 cannot be taken offline")
    try:
        a = agent("--stdout", "--reporter-interval", "2s", "--samples-per-second", 97)
        profiling(a)
        set_online(True)
        with workload.Workload("qsort", 110, 11, seconds=60) as w:
            os.sched_setaffinity(w.pid, {1})
            mine, deadline = [], time.monotonic() + 30
            while sum(s.value for s in mine) < ENOUGH and time.monotonic() < deadline:
                time.sleep(1)
                mine = [s for s in a.samples() if s.pid == w.pid]
    finally:
        set_online(True)
    assert a.stop() == 0, a.stderr()
    assert sum(s.value for s in mine) >= ENOUGH, len(mine)
    assert all(s.user[-1] == "_start" for s in mine), [s.user for s in mine if s.user[-1] != "_start"]
