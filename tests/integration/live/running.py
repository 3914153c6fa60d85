# SPDX-License-Identifier: Apache-2.0
"""Runs an agent with the live page on free ports."""
import os
import re
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))

from kiln import agent as kiln_agent  # noqa: E402

CONFIG = """
receivers: {profiling: {samples_per_second: 99, reporter_interval: 1s%s}}
exporters: {folded_file: {path: %s}}
extensions: {live: {endpoint: "127.0.0.1:0"%s}, health_check: {endpoint: "127.0.0.1:0"}}
service:
  extensions: [live, health_check]
  pipelines: {profiles: {receivers: [profiling], exporters: [folded_file]}}
"""


class Live(kiln_agent.Agent):
    def __init__(self, folded, more="", arguments=(), receiver=""):
        super().__init__(*arguments, config=CONFIG % (receiver, folded, more))
        deadline = time.monotonic() + 120
        while not re.search(r"profiling at", self.stderr()):
            assert self.process.poll() is None and time.monotonic() < deadline, self.stderr()
            time.sleep(0.02)
        self.listening = time.monotonic()
        self.url = re.search(r"flame graph on (https?://\S+)/", self.stderr()).group(1)
        self.port = int(self.url.rsplit(":", 1)[1])
        self.metrics_url = re.search(r"health and metrics on (http://\S+)", self.stderr()).group(1)

    def metric(self, name):
        return kiln_agent.metrics(self.metrics_url)[name]
