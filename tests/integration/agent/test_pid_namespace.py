# SPDX-License-Identifier: Apache-2.0
"""An agent in a pid namespace of its own, as in a node that is a container (Kind): it samples the processes of that
namespace and of those below it, each under the id that its own /proc has, and nothing else of the machine."""
import subprocess

import pytest

from parts import ROOT, agent, folded

SECONDS = 8
# A process of this namespace, one of a namespace below (as a pod has), one that waits, and one that starts later.
SCRIPT = """cd {directory}
./inside {long} > inside.json &
unshare --pid --fork ./deeper {long} > deeper.json &
./waiting &
until cat /proc/[0-9]*/comm | grep -qx waiting; do sleep 0.05; done
(sleep 2; ./later 4 > later.json) &
{agent} --samples-per-second 97 --off-cpu --duration {seconds}s --folded-file all.folded 2> agent.log
status=$?
kill $(jobs -p)
exit $status
"""
WAITING = """#include <unistd.h>
__attribute__((noinline)) static void wait_here(void) { usleep(20000); __asm__ volatile(""); }
int main(void) { for (;;) wait_here(); }
"""


@pytest.fixture
def nested(tmp_path):
    """Runs the agent once: (CPU samples, off-CPU time), each as {program: {stack: value}}."""
    for name in ("inside", "deeper", "later", "outside"):
        subprocess.run(["cc", "-O2", "-o", tmp_path / name, ROOT / "tests/first-hour/shop.c"], check=True)
    subprocess.run(["cc", "-O2", "-x", "c", "-o", tmp_path / "waiting", "-"], input=WAITING, text=True, check=True)
    script = SCRIPT.format(directory=tmp_path, agent=agent.binary(), seconds=SECONDS, long=SECONDS + 20)
    with open(tmp_path / "outside.json", "wb") as out:
        outside = subprocess.Popen([tmp_path / "outside", str(SECONDS + 60)], stdout=out)
    try:
        done = subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "bash", "-c", script],
                              timeout=SECONDS + 120, check=False)
    finally:
        outside.kill()
        outside.wait()
    log = (tmp_path / "agent.log").read_text()
    assert done.returncode == 0, log
    assert "only processes of this one are sampled" in log

    def by_program(path):
        out = {}
        for stack, value in folded(path).items():
            out.setdefault(stack.split(";")[0], {})[stack] = value
        return out

    return by_program(tmp_path / "all.folded"), by_program(tmp_path / "all.folded.off_cpu")


def few(total):
    """How many of TOTAL samples (or nanoseconds) may deviate: 1 %, at least 2."""
    return max(2, total // 100)


def test_it_samples_its_own_namespace(nested):
    cpu, waits = nested
    print({name: sum(stacks.values()) for name, stacks in cpu.items()})
    for name in ("inside", "deeper", "later"):
        stacks = cpu[name]
        total = sum(stacks.values())
        whole = sum(n for stack, n in stacks.items() if stack.startswith(f"{name};_start;") and ";main" in stack)
        # Other tests run at the same time, so only a few samples are required. One or two may be taken in exec, before the
        # process has a user stack.
        assert total >= 10 and whole >= total - few(total), stacks
    waited = {stack: ns for stack, ns in waits["waiting"].items() if ";wait_here;" in stack}
    assert sum(waited.values()) > 0.5 * SECONDS * 1e9, waits["waiting"]
    assert "outside" not in cpu and "outside" not in waits
    # The agent's own first samples may precede its knowledge of its own process; on a busy machine others' first ones too.
    for kind in nested:
        for name, stacks in kind.items():
            unknown = sum(n for stack, n in stacks.items() if "process not known" in stack)
            assert name == "kiln-agent" or unknown <= few(sum(stacks.values())), (name, stacks)
