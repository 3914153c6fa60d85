# SPDX-License-Identifier: Apache-2.0
"""Receivers of each wire generation of OTLP profiles, and an agent that is not configured for a generation.

G4 and G5 are the OTLP receivers of Collectors 0.139 and 0.147, G6 is a current Collector. Every sample arrives once, and
one log line names the generation that is sent."""
import os
import re
import time

import pytest

from parts import Collector, components, folded, free_port, profiling, values, wait_until
from test_export import _metric

MATRIX = os.environ.get("KILN_MATRIX") == "1"
PROTOCOLS = ["grpc", "http"]
OLDER = ["0.139.0", "0.147.0"] if MATRIX else ["0.147.0"]
TODAY = "today"
TAKEN = "takes OTLP profiles as opentelemetry-proto v1.8 and v1.9 has them, and not those of v1.10 and v1.11"


class Receiver(Collector):
    """The OTLP receiver of an older Collector."""

    def start(self):
        output = self.directory / f"out-{len(self.outputs)}.json"
        self.outputs.append(output)
        return self.launch([self.binary, f"127.0.0.1:{self.grpc}", f"127.0.0.1:{self.http}", output])

    def stop(self):
        super().stop()
        for output in self.outputs:
            # Rename the JSON fields of opentelemetry-proto 1.8 to the current ones; the binary encoding is the same.
            text = re.sub('"(sample|line)":\\[', r'"\1s":[', output.read_text())
            output.write_text(text)


@pytest.fixture
def receiver(tmp_path, collector_binary):
    """receiver(version): all receivers use the same ports, so that one can replace another."""
    ports, made = (free_port(), free_port()), []

    def make(version):
        directory = tmp_path / f"receiver-{len(made)}"
        directory.mkdir()
        if version == TODAY:
            made.append(Collector(directory, collector_binary, *ports))
        else:
            made.append(Receiver(directory, components.receiver(version), *ports))
        return made[-1]

    yield make
    for r in made:
        r.kill()


def configuration(directory, receiver, protocol, extra="", queue="", health=None):
    where = f'"127.0.0.1:{receiver.grpc}"' if protocol == "grpc" else f'"http://127.0.0.1:{receiver.http}"'
    return f"""
receivers:
  profiling: {{samples_per_second: 97, reporter_interval: 1s{extra}}}
exporters:
  folded_file: {{path: {directory}/x.folded}}
  otlp_{protocol}: {{endpoint: {where}, tls: {{insecure: true}},
    retry_on_failure: {{initial_interval: 200ms, max_interval: 500ms}}{queue}}}
extensions:
  health_check: {{endpoint: "127.0.0.1:{health or 13133}"}}
service:
  extensions: [{"health_check" if health else ""}]
  pipelines:
    profiles: {{receivers: [profiling], exporters: [folded_file, otlp_{protocol}]}}
"""


def taken(directory):
    return sum(folded(f"{directory}/x.folded").values())


def assert_readable(samples):
    """Fails when fields were decoded as others, as with a wrong generation: each sample must have its attributes."""
    for s in samples:
        assert {"process.pid", "thread.id", "thread.name"} <= set(s["attributes"]), s
        assert s["frames"] or s["attributes"]["thread.name"]


@pytest.mark.parametrize("timestamps", [False, True] if MATRIX else [False], ids=lambda t: "timestamps" if t else "values")
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("version", OLDER + ([TODAY] if MATRIX else []))
def test_profiles_arrive_without_a_word_about_their_form(agent, receiver, busy, tmp_path, version, protocol, timestamps):
    r = receiver(version).start()
    extra = f", timestamps: {str(timestamps).lower()}"
    a = agent("--duration", "3s", "--pid", busy.pid, config=configuration(tmp_path, r, protocol, extra))
    assert a.wait() == 0, a.stderr()
    samples = r.samples()
    assert values(samples) == taken(tmp_path) > 0, a.stderr()
    assert_readable(samples)
    assert a.stderr().count(TAKEN) == (version != TODAY), a.stderr()
    assert "reject" not in a.stderr()


@pytest.mark.parametrize("protocol", PROTOCOLS if MATRIX else ["grpc"])
@pytest.mark.parametrize("version", OLDER)
def test_it_may_be_away_and_upgraded_and_the_agent_restarted(agent, receiver, busy, tmp_path, version, protocol):
    """Profiles are spooled while there is no receiver; then an older one, a current one and the older one again receive."""
    health = free_port()
    first, newer, again = receiver(version), receiver(TODAY), receiver(version)
    config = configuration(tmp_path, first, protocol, health=health,
                           queue=f", sending_queue: {{storage: {tmp_path}/spool}}")
    a = agent("--pid", busy.pid, config=config)
    profiling(a)
    wait_until("it notices", lambda: "is unreachable" in a.stderr())
    time.sleep(1.5)
    assert a.stop() == 0, a.stderr()
    total = taken(tmp_path)
    b = agent("--pid", busy.pid, config=config)
    profiling(b)
    url = f"http://127.0.0.1:{health}/metrics"
    for i, r in enumerate((first, newer, again)):
        r.start()
        sent = _metric(url, 'kiln_export_requests_total{result="sent"}')
        wait_until("it takes some", lambda: _metric(url, 'kiln_export_requests_total{result="sent"}') >= sent + 3)
        if i < 2:
            r.stop()
    assert b.stop() == 0, b.stderr()
    total += taken(tmp_path)
    got = [r.samples() for r in (first, newer, again)]
    assert sum(map(values, got)) == total, ([values(g) for g in got], total, b.stderr())
    assert min(map(values, got)) > 0
    for samples in got:
        assert_readable(samples)
    assert b.stderr().count(TAKEN) == 2 and "rejected a request" not in b.stderr(), b.stderr()


@pytest.mark.parametrize("protocol", PROTOCOLS if MATRIX else ["http"])
def test_one_line_says_why_nothing_is_taken(agent, collector_binary, busy, tmp_path, protocol):
    """One log line explains that the Collector has no pipeline for profiles."""
    r = Collector(tmp_path, collector_binary, signal="traces").start()
    health = free_port()
    a = agent("--pid", busy.pid, config=configuration(tmp_path, r, protocol, health=health))
    profiling(a)
    wait_until("it is refused", lambda: _metric(f"http://127.0.0.1:{health}/metrics",
                                                'kiln_export_requests_total{result="rejected"}') >= 2)
    assert a.stop() == 0, a.stderr()
    r.stop()
    lines = [line for line in a.stderr().splitlines() if "rejected a request" in line]
    assert len(lines) == 1 and "--feature-gates=service.profilesSupport and a profiles pipeline" in lines[0], lines
