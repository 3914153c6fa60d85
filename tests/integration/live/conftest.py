# SPDX-License-Identifier: Apache-2.0
import os

import pytest

from browser import Browser
from running import Live
from kiln import workload  # after running, which sets sys.path


def pytest_configure(config):
    config.addinivalue_line("markers", "alone: measures how quick things are, so nothing else may run")


@pytest.fixture(scope="module")
def busy():
    """Eight busy threads, each in its own functions, on one CPU and with a low priority."""
    with workload.Workload("threads", seconds=1200) as w:
        for task in os.listdir(f"/proc/{w.pid}/task"):
            os.sched_setaffinity(int(task), {min(os.sched_getaffinity(0))})
            os.setpriority(os.PRIO_PROCESS, int(task), 10)
        yield w


@pytest.fixture(scope="module")
def live(busy, tmp_path_factory):
    with Live(tmp_path_factory.mktemp("live") / "stacks.folded") as a:
        yield a


@pytest.fixture(scope="module")
def browser():
    b = Browser()
    yield b
    b.close()
