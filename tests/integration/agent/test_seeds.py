# SPDX-License-Identifier: Apache-2.0
"""Configurations, flags and environments for other profilers: the agent starts with them unchanged and does what their
documents describe. The documents are outside of the tree (KILN_SEEDS, ../shared/seeds); configs/ has equivalent
configurations, so that a clone without the documents tests something, too."""
import os
import pathlib
import re
import shlex
import subprocess
import textwrap
import time
import uuid

import pytest

from parts import (HERE, ROOT, WAIT, Collector, Sandbox, contained, go, period, profiling, values, wait_until, workload)

SEEDS = pathlib.Path(os.environ.get("KILN_SEEDS", ROOT.parent / "shared" / "seeds"))
POD, CONTAINER = str(uuid.uuid4()), (uuid.uuid4().hex * 2)[:64]
CGROUP = f"/kubepods/burstable/pod{POD}/{CONTAINER}"


# ---- reading the documents ---------------------------------------------------------------------------


def document(number):
    """The text of document NUMBER; None when it is not there."""
    found = sorted(SEEDS.glob(f"{number:03}_*.txt"))
    return found[0].read_text(encoding="utf-8") if found else None


def blocks(text, language):
    """The fenced code blocks of LANGUAGE (a pattern), dedented."""
    pattern = re.compile(r"^([ \t]*)``` ?" + language + r"\n(.*?)^\1```", re.M | re.S)
    return [textwrap.dedent(body) for _, body in pattern.findall(text)]


def sections(yaml):
    """{top-level key: its lines} of a YAML text."""
    out = {}
    for part in re.split(r"^(?=[A-Za-z_]+:)", yaml, flags=re.M):
        match = re.match(r"([A-Za-z_]+):", part)
        if match:
            out[match.group(1)] = part
    return out


def starts_at_profiling(yaml):
    return bool(re.search(r"^\s+profiling\b", sections(yaml).get("receivers", ""), re.M)
                or re.search(r"receivers: \[profiling", yaml))


def every_configuration():
    """(name, text) of all configurations with a profiling receiver. A partial one is merged over the last complete one."""
    out = []
    for number in range(1000):
        text = document(number)
        if text is None:
            break
        whole = None
        for i, yaml in enumerate(b for b in blocks(text, "ya?ml") if starts_at_profiling(b)):
            parts = sections(yaml)
            if "receivers" not in parts and whole:
                yaml = "".join({**whole, **parts}.values())
            whole = sections(yaml)
            out.append((f"{number:03}-{i}", yaml))
    return out


FOUND = every_configuration()


def configurations(predicate):
    """Parametrizes a test with the documents' and the tree's own configurations for which PREDICATE(text) holds."""
    own = [(p.stem, p.read_text(encoding="utf-8")) for p in sorted((HERE / "configs").glob("*.yaml"))]
    rows = [(n, t) for n, t in FOUND + own if predicate(t)]
    if not FOUND:
        rows.append(("shared", None))
    return pytest.mark.parametrize("text", [t for _, t in rows], ids=[n for n, _ in rows])


def given(text):
    if text is None:
        pytest.skip(f"no documents at {SEEDS}")
    return text


def section(text, name):
    return sections(text).get(name, "")


# ---- running -----------------------------------------------------------------------------------------


@pytest.fixture
def sandbox(tmp_path):
    s = Sandbox(tmp_path, ["pyroscope", "otel-collector-gateway.observability", "otel-collector.monitoring.svc"])
    yield s
    s.close()


@pytest.fixture
def contained_nest():
    with contained(CGROUP, "nest", 11) as w:
        yield w


def until_dumped(a, pid):
    def check():
        assert a.process.poll() is None, a.stderr()
        # The last dump may still be incomplete.
        whole = a.stdout().rpartition("End Resource Profile")[0]
        return f"process.pid: {pid} (Int)" in whole
    wait_until("samples of the workload in the text", check)


ATTRIBUTE = re.compile(r"  [\w.]+: .* \((Str|Int|Bool|Slice)\)")
FRAME = re.compile(r"Instrumentation: (native|kernel|go|jvm|php|cpython), Function: .*")


RULERS = {
    "New Resource Profile": "--------------- New Resource Profile --------------",
    "New Profile": "------------------- New Profile -------------------",
    "New Sample": "------------------- New Sample --------------------",
    "End Sample": "------------------- End Sample --------------------",
    "End Profile": "------------------- End Profile -------------------",
    "End Resource Profile": "-------------- End Resource Profile ---------------",
}


def check_layout(lines):
    """Checks every line of a dump and the order of the lines; the number of samples."""
    at = 0

    def take(want):
        nonlocal at
        assert at < len(lines), f"the dump ends where {want} is due"
        line = lines[at]
        good = line == want if isinstance(want, str) else want.fullmatch(line)
        assert good, f"line {at + 1}: {line!r}, want {want}"
        at += 1

    def while_(pattern):
        nonlocal at
        n = 0
        while at < len(lines) and pattern.fullmatch(lines[at]):
            at, n = at + 1, n + 1
        return n

    samples = 0
    while at < len(lines):
        take(RULERS["New Resource Profile"])
        while_(ATTRIBUTE)
        profiles = 0
        while at < len(lines) and lines[at] == RULERS["New Profile"]:
            take(RULERS["New Profile"])
            take("  ProfileID: " + "0" * 32)
            take("  Dropped attributes count: 0")
            take("  SampleType: samples")
            while lines[at] == RULERS["New Sample"]:
                take(RULERS["New Sample"])
                for key, kind in (("thread.name", "Str"), ("process.executable.name", "Str"),
                                  ("process.executable.path", "Str"), ("process.pid", "Int"), ("thread.id", "Int")):
                    take(re.compile(f"  {re.escape(key)}: .* \\({kind}\\)"))
                take(re.compile(r"  Values: \[\d+\]"))
                take("-" * 51)
                while_(FRAME)
                take(RULERS["End Sample"])
                samples += 1
            take(RULERS["End Profile"])
            profiles += 1
        assert profiles
        take(RULERS["End Resource Profile"])
        take("")
    return samples


@configurations(lambda t: "customprofilesexporter" in section(t, "exporters") or "debug" in section(t, "exporters"))
def test_text_of_containers(agent, sandbox, contained_nest, text):
    text = given(text)
    env = {"KUBERNETES_NODE_NAME": "meadow"}
    with workload.Workload("nest", 11, seconds=600) as outside:
        a = agent("--feature-gates=service.profilesSupport", config=text, prefix=sandbox.prefix, env=env)
        until_dumped(a, contained_nest.pid)
        assert a.stop() == 0, a.stderr()
    assert check_layout(a.stdout().splitlines()) > 0
    samples = a.samples()
    assert outside.pid not in {s.pid for s in samples}, "a process outside containers is shown"
    assert all(s.resource.get("container.id") for s in samples)
    mine = [s for s in samples if s.pid == contained_nest.pid]
    assert {s.resource["container.id"] for s in mine} == {CONTAINER}
    assert any(s.user[:2] == ["nest_leaf", "nest_odd"] for s in mine)
    if 'foo: "bar"' in text:
        assert all(s.resource["foo"] == "bar" for s in samples)
        assert "  foo: bar (Str)\n" in a.stdout()
    if "k8sattributes" in text:
        assert {(s.resource.get("k8s.pod.uid"), s.resource.get("k8s.node.name")) for s in mine} == {(POD, "meadow")}
    frames = [line for line in a.stdout().splitlines() if line.startswith("Instrumentation: ")]
    with_file = [f for f in frames if re.search(r", File: .*, Line: \d+, Column: 0$", f)]
    assert len(with_file) == (len(frames) if "export_function_file: true" in text else 0)


def rate_of(text):
    return int(re.search(r"(?i)samples_?per_?second: (\d+)", text).group(1))


@configurations(lambda t: "otlp" in section(t, "exporters"))
def test_otlp_to_the_endpoint_by_name(agent, sandbox, busy, contained_nest, tmp_path, collector_binary, text):
    text = given(text)
    port = int(re.search(r"endpoint: pyroscope:(\d+)", text).group(1))
    collector = Collector(tmp_path, collector_binary, grpc=port, prefix=sandbox.prefix).start()
    try:
        a = agent("--feature-gates=+service.profilesSupport", config=text, prefix=sandbox.prefix)
        profiling(a)
        time.sleep(8)  # one window of five seconds; the rest is sent when the agent stops
        assert a.stop() == 0, a.stderr()
        samples = collector.samples()
    finally:
        collector.kill()
    assert collector.complaints() == []
    mine = [s for s in samples if s["attributes"]["process.pid"] == busy.pid]
    assert values(mine) > 10
    assert {s["period"] for s in samples} == {("cpu", "nanoseconds", period(rate_of(text)))}
    assert {s["resource"]["process.executable.name"] for s in mine} == {"wl-threads"}
    assert any(f["name"] == "leaf_0" for s in mine for f in s["frames"])
    inside = [s for s in samples if s["attributes"]["process.pid"] == contained_nest.pid]
    assert {s["resource"]["container.id"] for s in inside} == {CONTAINER}
    if "k8sattributes" in text:
        assert {s["resource"]["k8s.pod.uid"] for s in inside} == {POD}


@configurations(lambda t: "pprof" in section(t, "extensions"))
def test_go_tool_pprof_reads_the_agents_own_profile(agent, sandbox, tmp_path, text):
    text = given(text)
    if not go():
        pytest.skip("no Go")
    # Many short processes keep the agent busy, so that its own profile has samples.
    with workload.Workload("storm", "DIR", 150, seconds=100):
        a = agent(config=text, prefix=sandbox.prefix, env={"KUBERNETES_NODE_NAME": "meadow"})
        wait_until("the extension answers",
                   lambda: "can be" not in sandbox.run("curl", "-sS", "http://localhost:1777/").stderr and
                   sandbox.run("curl", "-s", "http://localhost:1777/").returncode == 0)
        # On a slow machine the storm has so few processes that the agent has no sample in some 5 s.
        for _ in range(5):
            done = sandbox.run(go(), "tool", "pprof", "-top", "http://localhost:1777/debug/pprof/profile?seconds=5",
                               env={**os.environ, "PPROF_TMPDIR": str(tmp_path), "GOTOOLCHAIN": "local"})
            if "Total samples = 0" not in done.stdout:
                break
    assert a.stop() == 0, a.stderr()
    assert done.returncode == 0, done.stderr
    assert "Type: cpu" in done.stdout or "Type: samples" in done.stdout, done.stdout
    assert "kiln-agent" in done.stdout, done.stdout
    rows = [line.split(None, 5)[5] for line in done.stdout.splitlines() if re.match(r"\s+\S+\s+[\d.]+%", line)]
    own = own_functions()
    assert any(row.removesuffix(" (inline)") in own for row in rows), done.stdout


def own_functions():
    from parts import agent as kiln
    text = subprocess.run(["nm", "--defined-only", kiln.binary()], capture_output=True, text=True, check=True).stdout
    return {line.split()[2] for line in text.splitlines() if line.split()[1] in "tT"}


# ---- environment and flags of the standalone profiler ------------------------------------------------


def daemonset_env(text):
    """{name: value} of the environment in the document's DaemonSet; $(NAME) is expanded, a fieldRef becomes "meadow"."""
    out = {}
    for name, rest in re.findall(r"- name: ([A-Z_]+)\n\s+(value: \"[^\"]*\"|valueFrom:\n\s+fieldRef:\n\s+fieldPath: \S+)", text):
        out[name] = rest.split('"')[1] if rest.startswith("value:") else "meadow"
    return {k: re.sub(r"\$\((\w+)\)", lambda m: out[m.group(1)], v) for k, v in out.items()}


OWN_ENV = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://otel-collector-gateway.observability:4317",
           "OTEL_PROFILER_SAMPLING_FREQUENCY": "31", "OTEL_PROFILER_MAX_STACK_DEPTH": "40", "NODE_NAME": "meadow",
           "OTEL_RESOURCE_ATTRIBUTES": "host.name=meadow"}


@pytest.mark.parametrize("source", ["002", "own"])
def test_environment_of_the_standalone_profiler(agent, sandbox, tmp_path, collector_binary, source):
    text = document(2)
    if source == "002" and text is None:
        pytest.skip(f"no documents at {SEEDS}")
    env = daemonset_env(text) if source == "002" else OWN_ENV
    assert set(env) == set(OWN_ENV)
    collector = Collector(tmp_path, collector_binary, grpc=4317, prefix=sandbox.prefix).start()
    try:
        with workload.Workload("qsort", 110, 11, seconds=600) as deep:
            a = agent(env=env, prefix=sandbox.prefix)
            profiling(a)
            time.sleep(8)
            assert a.stop() == 0, a.stderr()
        samples = collector.samples()
    finally:
        collector.kill()
    assert values(samples) > 10
    hz = int(env["OTEL_PROFILER_SAMPLING_FREQUENCY"])
    assert {s["period"] for s in samples} == {("cpu", "nanoseconds", period(hz))}
    assert {s["resource"]["host.name"] for s in samples} == {"meadow"}
    assert {s["resource"]["k8s.node.name"] for s in samples} == {"meadow"}
    depths = [len([f for f in s["frames"] if f["type"] != "kernel"]) for s in samples
              if s["attributes"]["process.pid"] == deep.pid]
    # A truncated stack has one more frame, which marks the truncation.
    assert depths and max(depths) in (int(env["OTEL_PROFILER_MAX_STACK_DEPTH"]), int(env["OTEL_PROFILER_MAX_STACK_DEPTH"]) + 1)


def exec_start(text):
    """(arguments, capabilities) of the document's systemd unit."""
    unit = next(b for b in blocks(text, "ini") if "ExecStart=" in b)
    line = re.search(r"^ExecStart=((?:.*\\\n)*.*)$", unit, re.M).group(1)
    caps = re.search(r"^CapabilityBoundingSet=(.*)$", unit, re.M).group(1).split()
    return shlex.split(line.replace("\\\n", " "))[1:], caps


OWN_UNIT = (["-collection-agent", "localhost:4317", "-reporter-interval", "60s", "-samples-per-second", "23",
             "-service-name", "my-application", "-tags", "environment=production,region=us-east-1"],
            ["CAP_SYS_ADMIN", "CAP_PERFMON", "CAP_SYS_PTRACE"])


@pytest.mark.parametrize("source", ["003", "own"])
def test_systemd_unit_of_the_standalone_profiler(agent, sandbox, busy, tmp_path, collector_binary, source):
    """Runs the unit's ExecStart with the unit's capabilities. The flag -collection-agent implies TLS."""
    text = document(3)
    if source == "003" and text is None:
        pytest.skip(f"no documents at {SEEDS}")
    arguments, caps = exec_start(text) if source == "003" else OWN_UNIT
    crt, key = certificate(tmp_path)
    bounding = "--bounding-set=-all," + ",".join("+" + c.lower().removeprefix("cap_") for c in caps)
    collector = Collector(tmp_path, collector_binary, grpc=4317, prefix=sandbox.prefix, tls=(crt, key)).start()
    try:
        a = agent(*arguments, prefix=(*sandbox.prefix, "setpriv", bounding),
                  env={"OTEL_EXPORTER_OTLP_CERTIFICATE": str(crt)})
        profiling(a)
        time.sleep(6)
        assert a.process.poll() is None, a.stderr()
        assert a.stop() == 0, a.stderr()  # long before the first window is over
        samples = collector.samples()
    finally:
        collector.kill()
    assert collector.complaints() == []
    hz = int(arguments[arguments.index("-samples-per-second") + 1])
    assert {s["period"] for s in samples} == {("cpu", "nanoseconds", period(hz))}
    assert {(s["resource"]["service.name"], s["resource"]["environment"], s["resource"]["region"])
            for s in samples} == {("my-application", "production", "us-east-1")}
    mine = [s for s in samples if s["attributes"]["process.pid"] == busy.pid]
    assert any(f["name"] == "leaf_0" for s in mine for f in s["frames"])


def flag_lines(text):
    """Arguments of each command in the document's shell blocks that starts the profiler."""
    out = []
    for block in blocks(text, "bash"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if "-collection-agent" in words:
                out.append(words[words.index("-collection-agent"):])
    return out


@pytest.mark.parametrize("i", [0, 1])
def test_command_lines_of_the_standalone_profiler(agent, sandbox, tmp_path, collector_binary, i):
    text = document(3)
    lines = flag_lines(text) if text else [
        OWN_UNIT[0][:6], OWN_UNIT[0][:6] + ["-process-filter", "java|python|go"]]
    arguments = lines[i]
    collector = Collector(tmp_path, collector_binary, grpc=4317, prefix=sandbox.prefix).start()
    try:
        with workload.Workload("nest", 11, seconds=600) as nest, workload.Workload("go", seconds=600) as gopher:
            a = agent(*arguments, "-disable-tls", prefix=sandbox.prefix)
            profiling(a)
            time.sleep(6)
            assert a.stop() == 0, a.stderr()
        samples = collector.samples()
    finally:
        collector.kill()
    pids = {s["attributes"]["process.pid"] for s in samples}
    assert gopher.pid in pids
    assert (nest.pid in pids) == ("-process-filter" not in arguments)
    if "-process-filter" in arguments:
        names = {s["resource"].get("process.executable.name", s["attributes"]["thread.name"]) for s in samples}
        assert all(re.search("java|python|go", n) for n in names), names


def certificate(directory):
    crt, key = directory / "server.crt", directory / "server.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days",
                    "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", crt],
                   check=True, capture_output=True)
    return crt, key


def test_the_documents_are_read():
    """An extraction that finds nothing must not look like success."""
    if not FOUND:
        pytest.skip(f"no documents at {SEEDS}")
    assert len(FOUND) >= 4, [n for n, _ in FOUND]
    assert set(RULERS.values()) <= set(document(0).splitlines())
    assert exec_start(document(3))[0][:2] == ["-collection-agent", "localhost:4317"]
    assert len(flag_lines(document(3))) == 2
