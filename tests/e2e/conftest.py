# SPDX-License-Identifier: Apache-2.0
import time

import pytest

import cluster as kiln

node = None


@pytest.fixture(scope="session")
def cluster():
    """A node with Kiln's images and one busy pod, and overlay "simple" applied. The tests of this folder use
    it one after another, in the order in which they are written."""
    global node
    node = kiln.Cluster()
    try:
        node.up().images()
        node.kubectl("create", "namespace", "shop")
        node.busy_pod("busy")
        node.applied = time.monotonic()
        node.kubectl("apply", "-k", kiln.ROOT / "kustomize/overlays/simple")
        yield node
    finally:
        node.down()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    """Attaches objects, events and logs of the node to the report of a failed test: the node is gone afterwards."""
    outcome = yield
    report = outcome.get_result()
    if report.when != "call" or not report.failed or not node:
        return
    for command in (["get", "pods", "-A", "-o", "wide"], ["get", "cpc,ds,deploy,lease", "-A"],
                    ["get", "events", "-n", kiln.NAMESPACE],
                    ["logs", "-n", kiln.NAMESPACE, "-l", kiln.OPERATORS, "--prefix", "--tail=30"],
                    ["logs", "-n", kiln.NAMESPACE, "-l", kiln.AGENTS, "--tail=40"]):
        try:
            report.sections.append(("kubectl " + " ".join(command), node.kubectl(*command)))
        except Exception as e:  # pylint: disable=broad-except
            report.sections.append(("kubectl " + " ".join(command), str(e)))


def pytest_terminal_summary(terminalreporter):
    for what, seconds in node.times if node else []:
        terminalreporter.write_line(f"{what:50} {seconds:6.1f} s")
