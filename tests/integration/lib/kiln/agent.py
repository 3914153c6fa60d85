# SPDX-License-Identifier: Apache-2.0
"""Runs kiln-agent and reads its output and metrics."""
import os
import re
import signal
import subprocess
import tempfile
import time
import urllib.request

from . import textdump

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", "..", "..", ".."))


def binary():
    """The path in KILN_AGENT (set by ctest), else the agent that was built last."""
    if os.environ.get("KILN_AGENT"):
        return os.environ["KILN_AGENT"]
    found = [os.path.join(ROOT, "build", preset, "bin", "kiln-agent") for preset in ("release", "dev")]
    found = [path for path in found if os.path.exists(path)]
    if not found:
        raise FileNotFoundError("no kiln-agent: set KILN_AGENT or build a preset")
    return max(found, key=os.path.getmtime)


class Agent:
    """One run of the agent. Its output goes to files, so that the agent never waits for a reader."""

    def __init__(self, *arguments, env=None, prefix=(), config=None):
        self.dir = tempfile.TemporaryDirectory(prefix="kiln-test-")
        self.out_path = os.path.join(self.dir.name, "out")
        self.err_path = os.path.join(self.dir.name, "err")
        command = [*prefix, binary()]
        if config is not None:
            path = os.path.join(self.dir.name, "config.yaml")
            with open(path, "w", encoding="utf-8") as f:
                f.write(config)
            command += ["--config", path]
        command += [str(a) for a in arguments]
        self.command = command
        with open(self.out_path, "wb") as out, open(self.err_path, "wb") as err:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                            env={**os.environ, **(env or {})})

    @property
    def pid(self):
        return self.process.pid

    def wait(self, timeout=120):
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def stop(self, timeout=120):
        """Sends SIGTERM, as a service manager does; the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.wait(timeout)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.dir.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def stdout(self):
        with open(self.out_path, encoding="utf-8", errors="replace") as f:
            return f.read()

    def stderr(self):
        with open(self.err_path, encoding="utf-8", errors="replace") as f:
            return f.read()

    def samples(self):
        return textdump.parse(self.stdout().splitlines())

    def cpu_seconds(self):
        with open(f"/proc/{self.pid}/stat", encoding="utf-8") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_kib(self):
        with open(f"/proc/{self.pid}/status", encoding="utf-8") as f:
            return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1))

    def map_bytes(self):
        """The memory that the kernel charges for the agent's open BPF maps, in bytes."""
        total, seen = 0, set()
        for name in os.listdir(f"/proc/{self.pid}/fdinfo"):
            try:
                with open(f"/proc/{self.pid}/fdinfo/{name}", encoding="utf-8") as f:
                    info = dict(line.split(":", 1) for line in f.read().splitlines() if ":" in line)
            except OSError:
                continue
            if "map_type" in info and info.get("map_id") not in seen:
                seen.add(info.get("map_id"))
                total += int(info.get("memlock", "0"))
        return total

    def wait_ready(self, seconds=120, url="http://127.0.0.1:13133/readyz"):
        """Waits until URL answers 200. The configuration must have the extension health_check."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"agent ended with {self.process.returncode}: {self.stderr().strip()}")
            try:
                with urllib.request.urlopen(url, timeout=10) as answer:
                    if answer.status == 200:
                        return
            except OSError:
                pass
            time.sleep(0.1)
        raise RuntimeError(f"agent not ready after {seconds} s: {self.stderr().strip()}")


def metrics(url="http://127.0.0.1:13133/metrics"):
    """{name: sum over labels} and {name{labels}: value} of the Prometheus text."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        text = answer.read().decode()
    out = {}
    for line in text.splitlines():
        match = re.fullmatch(r"([a-zA-Z_:][\w:]*)(\{.*\})? (\S+)(?: \d+)?", line)
        if not match:
            continue
        name, labels, value = match.group(1), match.group(2) or "", float(match.group(3))
        out[name] = out.get(name, 0.0) + value
        if labels:
            out[name + labels] = value
    return out
