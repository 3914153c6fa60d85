# SPDX-License-Identifier: Apache-2.0
"""Runs the agent that is measured."""
import contextlib
import os

from kiln import agent

CONFIG = """
receivers:
  profiling: {samples_per_second: %(hz)d, reporter_interval: 5s%(more)s}
exporters:
  %(exporter)s
extensions:
  health_check: {endpoint: "127.0.0.1:%(port)d"}
service:
  extensions: [health_check]
  pipelines:
    profiles: {receivers: [profiling], exporters: [%(name)s]}
"""


@contextlib.contextmanager
def running_agent(hz, exporter="folded_file: {path: /dev/null}", prefix=(), more="", pid=None):
    """Runs an agent at HZ until it is ready. MORE: settings of the receiver; PREFIX: a command that runs the agent; PID: the
    only process that is sampled (None: all)."""
    port = 13190 + os.getpid() % 500
    config = CONFIG % {"hz": hz, "exporter": exporter, "name": exporter.split(":")[0], "port": port, "more": more}
    with agent.Agent(*(("--pid", pid) if pid else ()), prefix=prefix, config=config) as a:
        a.url = f"http://127.0.0.1:{port}"
        a.wait_ready(url=a.url + "/readyz")
        yield a
