# SPDX-License-Identifier: Apache-2.0
"""A program that wakes in step with the clock, at the rate at which it is sampled, is seen at every point of its work."""
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
        said = json.loads(w.process.stdout.read())  # when it ends
        assert a.stop() == 0, a.stderr()
    seen = {name: sum(n for stack, n in folded(output).items() if f"rhythm_{name}" in stack) for name in said}
    print(hz, seen, said)
    used, lasted = ({name: of[what] for name, of in said.items()} for what in ("used", "lasted"))
    total = sum(seen.values())
    # The agent came a little later. Time for which a hypervisor took the CPU away is in the samples and not in `used`.
    assert 0.5 * sum(used.values()) < total * period(hz) < 1.15 * sum(lasted.values())
    # What random draws would be off by, four times; in step, all would be one function's.
    shares = sorted(of["first"] / sum(of.values()) for of in (used, lasted))
    error = 4 * math.sqrt(shares[0] * (1 - shares[0]) / total)
    assert shares[0] - error < seen["first"] / total < shares[1] + error
