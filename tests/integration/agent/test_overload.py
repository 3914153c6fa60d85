# SPDX-License-Identifier: Apache-2.0
"""What one noisy neighbour does to the profiles of the others: nothing."""
import time

from parts import LONG, agent as kiln, free_port, workload

SECONDS = 60 if LONG else 8
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


def change(url, before):
    now = kiln.metrics(url)
    return {name: now[name] - before.get(name, 0) for name in now}


def test_a_storm_of_mappings_costs_the_others_nothing(agent):
    """Notes of mappings are lost all the time; who is not concerned is checked a few times and sampled as ever."""
    innocent = [workload.Workload("nest", seconds=SECONDS + 60) for _ in range(6)]
    a, url = start(agent, "--process-filter", "^wl-nest")
    time.sleep(4)
    before = kiln.metrics(url)
    storms = [workload.Workload("mmaps", seconds=SECONDS) for _ in range(4)]
    time.sleep(SECONDS)
    m = change(url, before)
    for w in innocent + storms:
        w.process.kill()
        w.process.wait()
    print({k: v for k, v in m.items() if v and ("sideband" in k or "mapset" in k or "samples" in k or "maps_reads" in k)})
    assert m["kiln_samples_total"] > 20 * SECONDS
    assert m["kiln_sideband_lost_total"] > 0, "the storm was no storm"
    assert m["kiln_samples_incomplete_total"] == 0 and m["kiln_samples_dropped_total"] == 0
    # Losses in a row count at 0, 1, 3, 7, 15, ... seconds; each process is looked at once for one of them.
    assert 0 < m["kiln_mapsets_checked_total"] <= 6 * (5 if not LONG else 8)
    assert m["kiln_maps_reads_total"] <= m["kiln_mapsets_checked_total"] + 4
    assert a.stop() == 0, a.stderr()
