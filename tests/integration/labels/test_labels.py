#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Labels of samples. usage: test_labels.py places|runtime|origins|race|garbage|policy|custom|go [VERSION]|crates

  places   a thread's context is found wherever its variable is; a sample's function tells which tenant it must have
  runtime  a Python program that publishes from its start keeps its labels when its own frames are walked
  origins  samples of off-CPU time and of probes have labels as those of CPU time do
  race     contexts that change all the time, whose ids verify each other: no sample mixes two contexts
  garbage  invalid contexts: no labels are shown, the losses are counted, another process keeps its labels
  policy   labels that are not allowed are in no output: not in the text, not in pprof, not in folded stacks
  custom   custom labels of a native program
  go       pprof labels of goroutines that move between threads
  crates   programs that publish by a library: the crates of libdatadog (OpenTelemetry's contexts) and custom-labels
"""
import collections
import gzip
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))
from kiln import agent  # noqa: E402
import ports  # noqa: E402

PROGRAMS = os.environ["KILN_LABEL_PROGRAMS"]
PORT = ports.free_port()
SKIP = 77
# The routes of program.c, by tenant: a long record, and one that ends where the memory ends.
ROUTES = {"A": "/pay/{id}/by/{card}/of/{bank}/in/{country}/and/then/back/to/{shop}/with/{receipt}/or/{error}/at/{time}/once",
          "B": "/pay/{id}"}


def mix(n):
    """The hash of the same name in context.c."""
    n &= (1 << 64) - 1
    n = (n ^ n >> 30) * 0xbf58476d1ce4e5b9 & (1 << 64) - 1
    n = (n ^ n >> 27) * 0x94d049bb133111eb & (1 << 64) - 1
    return n ^ n >> 31


def span_of(trace):
    """The span id (hex) that context.c derives from a trace id (hex). Fails when the trace id's halves do not match."""
    high = int.from_bytes(bytes.fromhex(trace[:16]), "little")
    low = int.from_bytes(bytes.fromhex(trace[16:]), "little")
    assert mix(high) == low, trace
    span = mix((high ^ low << 1) & (1 << 64) - 1) | 1
    return span.to_bytes(8, "little").hex()


class Program:
    def __init__(self, name, *arguments):
        path = name if name.startswith("/") else os.path.join(PROGRAMS, name)
        self.process = subprocess.Popen([path, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            raise RuntimeError(f"{name} ended: {self.process.wait()}")
        self.pid = self.process.pid

    def tell(self, text):
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def end(self):
        """Closes the program's input; the output that it writes at its end."""
        out, _ = self.process.communicate(timeout=30)
        return out

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


class Sample:
    def __init__(self, text):
        self.functions = re.findall(r"Function: (\S+)", text)
        self.labels = dict(re.findall(r"^  (\S+): (.*) \(Str\)$", text, re.M))
        self.value = int(re.search(r"Values: \[(\d+)", text).group(1))
        self.pid = int(re.search(r"process.pid: (\d+)", text).group(1))

    @property
    def work(self):
        return next((f for f in self.functions if re.match(r"(main\.)?work", f)), None)


def config(hz=997, labels="", more="", exporters=""):
    return f"""
receivers: {{profiling: {{samples_per_second: {hz}, reporter_interval: 1s, labels: [{labels}], {more}}}}}
extensions: {{health_check: {{endpoint: "127.0.0.1:{PORT}"}}}}
exporters:
  debug: {{ignore_profiles_without_container_id: false}}
{exporters}
service:
  extensions: [health_check]
  pipelines: {{profiles: {{receivers: [profiling], exporters: [debug{"".join(", " + e.split(":")[0].strip() for e in exporters.splitlines())}]}}}}
"""


def parse(text, before):
    """The complete samples in the dump TEXT, without the first BEFORE ones."""
    return [Sample(s) for s in text.split("New Sample")[1 + before:] if "End Sample" in s]


def count(samples, *functions):
    """The smallest number of samples that any of FUNCTIONS has."""
    return min(sum(s.value for s in samples if s.work == f) for f in functions)


def profile(pids, seconds, first=None, during=None, enough=lambda samples: True, **how):
    """Profiles PIDS for SECONDS: (samples, metrics at the end). FIRST: a label; samples count from the first one that has it.
    ENOUGH(samples): on a busy machine, profiling continues until this holds, for a minute at most."""
    arguments = [a for pid in pids for a in ("--pid", pid)]
    with agent.Agent(*arguments, config=config(**how)) as a:
        a.wait_ready(url=f"http://127.0.0.1:{PORT}/readyz")
        deadline = time.monotonic() + 30
        while first and f"  {first}: " not in a.stdout() and time.monotonic() < deadline:
            time.sleep(0.2)
        # Skip the window of that first sample: it has earlier samples, too.
        time.sleep(1.1)
        before = a.stdout().count("New Sample")
        if during:
            during()
        time.sleep(seconds)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not enough(parse(a.stdout(), before)):
            time.sleep(1)
        counted = agent.metrics(f"http://127.0.0.1:{PORT}/metrics")
        if a.stop():
            raise RuntimeError(a.stderr()[-500:])
        return parse(a.stdout(), before), counted


def places():
    for variant in ("exec", "gd", "ie", "desc"):
        path = os.path.join(PROGRAMS, f"labels-{variant}")
        if not os.path.exists(path):
            continue
        with Program(path, "steady", 2) as p:
            samples, _ = profile([p.pid], 2, first="tenant", labels='tenant, "http.route"',
                                 enough=lambda s: count(s, "work_A", "work_B") >= 100)
        wrong = right = 0
        for s in samples:
            if s.work not in ("work_A", "work_B"):
                continue
            good = s.labels.get("tenant") == s.work[-1] and s.labels.get("http.route") == ROUTES[s.work[-1]]
            good = good and span_of(s.labels["trace_id"]) == s.labels["span_id"]
            right += s.value * good
            wrong += s.value * (not good)
        print(f"{variant}: {right} samples right, {wrong} wrong")
        assert right >= 200 and not wrong


def runtime():
    preload = "LD_PRELOAD=" + os.path.join(PROGRAMS, "liblabels-gd.so")
    with Program("/usr/bin/env", preload, sys.executable, os.path.join(HERE, "labelled.py")) as p:
        samples, _ = profile([p.pid], 2, first="tenant", labels="tenant", enough=lambda s: count(s, "work_A") >= 100)
    mine = [s for s in samples if s.work == "work_A"]
    right = sum(s.value for s in mine if s.labels.get("tenant") == "A")
    print(f"{right} of {sum(s.value for s in mine)} samples right")
    assert right >= 100 and right == sum(s.value for s in mine)


def origins():
    path = os.path.join(PROGRAMS, "labels-exec")
    probes = ", ".join(f'"uprobe:{path}:{f},rate=1000"' for f in ("work_A", "work_B"))
    with Program("labels-exec", "waiting", 2) as p:
        samples, _ = profile([p.pid], 3, first="tenant", labels="tenant", more=f"off_cpu_threshold: 1, probes: [{probes}]")
    samples = [s for s in samples if s.work]
    # A uprobe hits at the first instruction of its function, so the leaf of such a sample is the function itself.
    for origin, of in (("off-CPU", [s for s in samples if "off_cpu.cause" in s.labels]),
                       ("probe", [s for s in samples if s.functions[0] == s.work])):
        wrong = [(s.work, s.labels) for s in of if s.labels.get("tenant") != s.work[-1] or
                 span_of(s.labels["trace_id"]) != s.labels["span_id"]]
        print(f"{origin}: {len(of)} samples, {len(wrong)} wrong")
        assert {s.work for s in of} == {"work_A", "work_B"} and not wrong, wrong[:5]


def race():
    with Program("labels-exec", "racing", 2) as p:
        samples, counted = profile([p.pid], int(os.environ.get("KILN_LABEL_SECONDS", "6")), first="trace_id", labels="tenant",
                                   enough=lambda s: sum(x.value for x in s if "trace_id" in x.labels) >= 1000)
        changes = int(p.end())
    traces = collections.Counter()
    for s in samples:
        if "trace_id" in s.labels:
            assert span_of(s.labels["trace_id"]) == s.labels["span_id"], s.labels
            traces[s.labels["trace_id"]] += s.value
        assert s.labels.get("tenant", "even") in ("even", "a longer one"), s.labels
    n = sum(traces.values())
    print(f"{n} samples of {len(traces)} contexts, none torn; {changes / 1e6:.0f} million changes")
    assert n >= 1000 and len(traces) > n / 2
    assert counted['kiln_labels_lost_total{reason="broken"}'] == 0


def garbage():
    with Program("labels-exec", "garbage", 1) as bad, Program("labels-exec", "steady", 1) as good:
        samples, counted = profile([bad.pid, good.pid], 3, first="tenant", labels='"*"', enough=lambda s: min(
            sum(x.value for x in s if x.pid == p) for p in (bad.pid, good.pid)) >= 150)
    ours = [s for s in samples if s.pid == good.pid and s.work in ("work_A", "work_B")]
    theirs = [s for s in samples if s.pid == bad.pid]
    assert sum(s.value for s in ours) >= 50 and sum(s.value for s in theirs) >= 50
    assert all(s.labels.get("tenant") == s.work[-1] for s in ours)
    # One of the six contexts has valid ids, but attributes without names.
    shown = {s.labels["trace_id"] for s in theirs if "trace_id" in s.labels}
    assert len(shown) <= 1 and all(span_of(t) for t in shown), shown
    assert not any("tenant" in s.labels for s in theirs)
    for reason in ("unreadable", "broken"):
        lost = counted[f'kiln_labels_lost_total{{reason="{reason}"}}']
        print(f"{reason}: {lost:.0f}")
        assert lost > 0


def policy():
    with tempfile.TemporaryDirectory() as folder, Program("labels-exec", "steady", 1) as p:
        exporters = f"  pprof_file: {{path: {folder}/out-%s.pb.gz}}\n  folded_file: {{path: {folder}/out.folded}}"
        # The third key is named while the agent runs: the agent reads the keys again, and still withholds this one.
        samples, counted = profile([p.pid], 3, first="tenant", labels="tenant", exporters=exporters,
                                   during=lambda: p.tell("name it\n"))
        written = b""
        for name in os.listdir(folder):
            with open(os.path.join(folder, name), "rb") as f:
                data = f.read()
            written += gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    text = repr([s.labels for s in samples]).encode()
    assert b"tenant" in text and b"tenant" in written and b"trace_id" in written
    for secret in (b"hunter2", b"secret", b"http.route", b"/pay/"):
        assert secret not in text and secret not in written, secret
    assert counted["kiln_labels_withheld_total"] > 0
    with Program("labels-exec", "steady", 1) as p:
        samples, _ = profile([p.pid], 3, first="trace_id", labels='"*"', during=lambda: p.tell("name it\n"))
    assert any(s.labels.get("secret") == "hunter2" for s in samples), "the key that came later"
    with Program("labels-exec", "steady", 1) as p:
        samples, _ = profile([p.pid], 2, first="trace_id")
    keys = {k for s in samples for k in s.labels}
    assert "trace_id" in keys and "span_id" in keys and "tenant" not in keys, keys
    print("what is not allowed stays")


def compare(samples, want, is_key):
    """WANT: {function: labels}. ({function: number of samples}, [samples whose labels differ]); keys count if IS_KEY(key)."""
    seen, wrong = collections.Counter(), []
    for s in samples:
        if s.work in want:
            labels = {k: v for k, v in s.labels.items() if is_key(k)}
            seen[s.work] += s.value
            if labels != want[s.work]:
                wrong.append((s.work, labels, s.value))
    return seen, wrong


def custom():
    want = {"work_A": {"tenant": "A", "empty": ""}, "work_B": {"tenant": "B"}, "work_none": {}}
    with Program("labels-custom") as p:
        samples, _ = profile([p.pid], 2, first="tenant", labels='tenant, empty', enough=lambda s: count(s, *want) >= 50)
    seen, wrong = compare(samples, want, lambda k: k in ("tenant", "empty"))
    print(f"{dict(seen)}, {len(wrong)} wrong")
    assert all(seen[f] >= 50 for f in want) and not wrong, wrong[:5]


def go_program(version, folder):
    """Builds program.go with the given Go version; its path. Exits as skipped when that Go is not available."""
    go = next((g for g in ("/usr/local/go/bin/go", "/usr/bin/go") if os.path.exists(g)), None)
    if not go:
        print("skipped: no go")
        sys.exit(SKIP)
    with open(os.path.join(HERE, "program.go"), encoding="utf-8") as f, \
            open(os.path.join(folder, "main.go"), "w", encoding="utf-8") as out:
        out.write(f.read())
    with open(os.path.join(folder, "go.mod"), "w", encoding="utf-8") as f:
        f.write("module program\n\ngo 1.13\n")
    done = subprocess.run([go, "build", "-o", "program", "."], cwd=folder, capture_output=True, text=True, timeout=500,
                          env={**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local" if version == "local" else f"go{version}"})
    if done.returncode:
        print(f"skipped: Go {version}: {done.stderr[-300:]}")
        sys.exit(SKIP)
    return os.path.join(folder, "program")


def go(version="local"):
    """VERSION: 1.21 or later; the module proxy has no older toolchains."""
    want = {"main.workA": {"tenant": "A", "function": "workA"}, "main.workB": {"tenant": "B", "function": "workB"},
            "main.workNone": {}, "main.workMany": {f"key{i}": f"value{i}" for i in range(12)}}
    with tempfile.TemporaryDirectory() as folder, Program(go_program(version, folder)) as p:
        samples, counted = profile([p.pid], int(os.environ.get("KILN_LABEL_SECONDS", "4")), first="tenant", labels='"*"',
                                   enough=lambda s: count(s, *want) >= 50)
    seen, wrong = compare(samples, want, lambda k: re.fullmatch(r"tenant|function|key\d+", k))
    print(f"Go {version}: {sum(seen.values())} samples, {len(wrong)} wrong; {dict(seen)}")
    assert all(seen[f] >= 50 for f in want) and not wrong, wrong[:5]
    assert counted['kiln_labels_lost_total{reason="broken"}'] == 0


def crate_programs():
    """Builds the programs of crates/; their folder. Exits as skipped when the crates cannot be fetched."""
    cargo = shutil.which("cargo") or os.path.expanduser("~/.cargo/bin/cargo")
    if not os.path.exists(cargo):
        print("skipped: no cargo")
        sys.exit(SKIP)
    target, crates_dir = os.path.join(PROGRAMS, "label-crates"), os.path.join(HERE, "crates")
    done = subprocess.run([cargo, "fetch", "--locked"], cwd=crates_dir, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        print(f"skipped: {done.stderr[-600:]}")
        sys.exit(SKIP)
    # Once the crates are fetched, the build must succeed.
    subprocess.run([cargo, "build", "--release", "--locked", "--offline", "--target-dir", target], cwd=crates_dir, timeout=500,
                   check=True)
    return os.path.join(target, "release")


def crates():
    ids = {f: {"trace_id": f"{f}1" * 16, "span_id": f"{f}2" * 8} for f in "ab"}
    want = {
        "custom": {"work_A": {"tenant": "A"}, "work_B": {"tenant": "B", "empty": ""}, "work_none": {}},
        "context": {"work_A": {"tenant": "A", "datadog.local_root_span_id": "a3" * 8, **ids["a"]},
                    "work_B": {"tenant": "B", "datadog.local_root_span_id": "b3" * 8, **ids["b"]}, "work_none": {}},
    }
    folder = crate_programs()
    for name, labels_of in want.items():
        keys = {k for labels in labels_of.values() for k in labels}
        with Program(os.path.join(folder, name)) as p:
            samples, counted = profile([p.pid], 2, first="tenant", labels='"*"', enough=lambda s: count(s, *labels_of) >= 100)
        seen, wrong = compare(samples, labels_of, keys.__contains__)
        print(f"{name}: {sum(seen.values())} samples, {len(wrong)} wrong; {dict(seen)}")
        assert all(seen[f] >= 100 for f in labels_of) and not wrong, wrong[:5]
        assert counted['kiln_labels_lost_total{reason="broken"}'] == 0


if __name__ == "__main__":
    {"places": places, "runtime": runtime, "origins": origins, "custom": custom, "race": race, "garbage": garbage, "policy": policy, "go": go,
     "crates": crates}[sys.argv[1]](*sys.argv[2:])
