# SPDX-License-Identifier: Apache-2.0
"""Runs the agent that is measured."""
import contextlib
import os
import subprocess

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


@contextlib.contextmanager
def empty_program(*where):
    """A BPF program that does nothing, called as the agent's programs are (arguments of kiln-bench-empty): what no profiler
    that is called there can cost less than."""
    path = os.path.join(os.path.dirname(agent.binary()), "kiln-bench-empty")
    with subprocess.Popen([path, *map(str, where)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        if process.stdout.readline() != b"ready\n":
            raise RuntimeError(path + " did not start")
        yield
        process.stdin.close()
