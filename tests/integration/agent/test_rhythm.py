# SPDX-License-Identifier: Apache-2.0
"""A program that wakes at the sampling rate, in step with the clock, is still sampled at every point of its work."""
import json
import math

import pytest

from parts import folded, period, profiling, workload

SECONDS = 12


@pytest.mark.parametrize("hz", [20, 100])
def test_a_program_in_step_with_the_rate_is_seen_whole(agent, tmp_path, hz):
    output = tmp_path / "x.folded"
    with workload.Workload("rhythm", 100, seconds=SECONDS) as w:
        a = agent("--pid", w.pid, "--samples-per-second", hz, "--folded-file", output)
        profiling(a)
        said = json.loads(w.process.stdout.read())  # returns when the program ends
        assert a.stop() == 0, a.stderr()
    seen = {name: sum(n for stack, n in folded(output).items() if f"rhythm_{name}" in stack) for name in said}
    print(hz, seen, said)
    used, lasted = ({name: of[what] for name, of in said.items()} for what in ("used", "lasted"))
    total = sum(seen.values())
    # The agent starts a little later. Samples count the time for which a hypervisor took the CPU away, `used` does not.
    assert 0.5 * sum(used.values()) < total * period(hz) < 1.15 * sum(lasted.values())
    # Allow four standard deviations of random sampling. Sampling in step would give one function all samples.
    shares = sorted(of["first"] / sum(of.values()) for of in (used, lasted))
    error = 4 * math.sqrt(shares[0] * (1 - shares[0]) / total)
    assert shares[0] - error < seen["first"] / total < shares[1] + error
