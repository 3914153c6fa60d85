# SPDX-License-Identifier: Apache-2.0
import os

import pytest

import parts


def pytest_configure(config):
    config.addinivalue_line("markers", "long: takes minutes, only with KILN_LONG=1")


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("long") and not parts.LONG:
            item.add_marker(pytest.mark.skip(reason="KILN_LONG is not 1"))


@pytest.fixture(scope="session")
def collector_binary():
    return parts.components.collector()


@pytest.fixture
def collector(tmp_path, collector_binary):
    c = parts.Collector(tmp_path, collector_binary)
    yield c
    c.kill()


@pytest.fixture
def agent():
    """Starts agents, and kills those that still run after the test. A sanitizer's report fails the test."""
    started = []

    def start(*arguments, **options):
        started.append(parts.agent.Agent(*arguments, **options))
        return started[-1]

    yield start
    for a in started:
        text = a.stderr()
        a.close()
        for word in ("AddressSanitizer", "LeakSanitizer", "ThreadSanitizer", "runtime error:"):
            assert word not in text, text[-6000:]


@pytest.fixture
def busy():
    """The workload "threads": eight threads that always compute."""
    with parts.workload.Workload("threads", seconds=1200) as w:
        yield w


@pytest.fixture(autouse=True)
def sanitizer_options(monkeypatch):
    """Sanitizers report on the agent's standard error, and with exit status 86."""
    for name, more in (("ASAN_OPTIONS", "exitcode=86:detect_leaks=1"), ("UBSAN_OPTIONS", "print_stacktrace=1"),
                       ("TSAN_OPTIONS", f"exitcode=86:suppressions={parts.ROOT}/hack/tsan.supp")):
        monkeypatch.setenv(name, ":".join(filter(None, (os.environ.get(name), more))))
