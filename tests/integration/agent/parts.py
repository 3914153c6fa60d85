# SPDX-License-Identifier: Apache-2.0
"""Helpers of the agent's tests: a Collector, container cgroups, readers of the exporters' files, and a sandbox with host
names and ports of its own."""
import contextlib
import gzip
import http.server
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "lib")]
import components  # noqa: E402,F401
import otlp_decode  # noqa: E402
from kiln import agent, textdump, workload  # noqa: E402,F401
from ports import free_port  # noqa: E402

LONG = os.environ.get("KILN_LONG") == "1"
SANITIZER = os.environ.get("KILN_SANITIZE", "")
WAIT = 300 if SANITIZER else 120  # seconds; the longest wait for an expected event


def period(hz):
    """ns between two samples at HZ samples a second, as kiln_period() of bpf/types.h computes it."""
    return 988_600_000 // hz


def wait_until(what, check, seconds=WAIT):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        got = check()
        if got:
            return got
        time.sleep(0.05)
    raise AssertionError(f"waited {seconds} s for: {what}")


def profiling(a):
    wait_until("the agent profiles", lambda: "profiling at" in a.stderr() or a.process.poll() is not None)
    assert a.process.poll() is None, a.stderr()


# ---- the network and the files of a test ------------------------------------------------------------


class Sandbox:
    """A network namespace (loopback only) and a mount namespace: every port is free, and HOSTS resolve to 127.0.0.1."""

    def __init__(self, directory, hosts=()):
        self.hosts = pathlib.Path(directory) / "hosts"
        self.hosts.write_text("127.0.0.1 localhost\n" + "".join(f"127.0.0.1 {h}\n" for h in hosts))
        script = f"ip link set lo up && mount --bind {self.hosts} /etc/hosts && echo ready && exec sleep infinity"
        self.holder = subprocess.Popen(["unshare", "--mount", "--net", "--propagation", "private", "sh", "-c", script],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self.holder.stdout.readline() != "ready\n":
            raise RuntimeError("no namespaces: " + self.holder.stderr.read())
        self.prefix = ("nsenter", f"--target={self.holder.pid}", "--mount", "--net")

    def run(self, *command, **options):
        return subprocess.run([*self.prefix, *map(str, command)], capture_output=True, text=True, check=False,
                              timeout=WAIT + 60, **options)

    def get(self, url):
        """The body that URL returns inside the sandbox, or None."""
        done = self.run("curl", "--silent", "--show-error", "--fail", url)
        return done.stdout if done.returncode == 0 else None

    def close(self):
        self.holder.kill()
        self.holder.wait()
        self.holder.stdout.close()
        self.holder.stderr.close()


# ---- a receiver ------------------------------------------------------------------------------------


class Collector:
    """A real Collector. Its ports stay the same across restarts; each run writes its own output file."""

    def __init__(self, directory, binary, grpc=None, http=None, prefix=(), tls=None, signal="profiles"):
        self.directory, self.binary, self.prefix, self.tls = pathlib.Path(directory), binary, prefix, tls
        self.signal = signal
        self.grpc, self.http = grpc or free_port(), http or free_port()
        self.outputs, self.process, self.decoded = [], None, None
        self.log_path = self.directory / "collector.log"

    def start(self):
        output = self.directory / f"out-{len(self.outputs)}.json"
        self.outputs.append(output)
        tls = f'tls: {{cert_file: "{self.tls[0]}", key_file: "{self.tls[1]}"}}, ' if self.tls else ""
        config = self.directory / "collector.yaml"
        config.write_text(f"""
receivers:
  otlp:
    protocols:
      grpc: {{{tls}endpoint: "127.0.0.1:{self.grpc}"}}
      http: {{endpoint: "127.0.0.1:{self.http}"}}
exporters:
  file: {{path: {output}}}
  debug: {{verbosity: basic}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    {self.signal}: {{receivers: [otlp], exporters: [file, debug]}}
""")
        return self.launch([self.binary, "--feature-gates=service.profilesSupport", f"--config={config}"])

    def launch(self, command):
        ready = self.log().count("Everything is ready")
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen([*self.prefix, *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until("the Collector is ready", lambda: self._alive() and self.log().count("Everything is ready") > ready)
        return self

    def _alive(self):
        assert self.process.poll() is None, self.log()[-2000:]
        return True

    def stop(self):
        if self.process:
            self.process.send_signal(signal.SIGTERM)
            assert self.process.wait(WAIT) == 0
            self.process = None

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def log(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def complaints(self):
        """The log lines of level warn and above."""
        return [line for line in self.log().splitlines()
                if any(level in line.split("\t")[1:2] for level in ("warn", "error", "fatal", "panic"))]

    def samples(self):
        """Stops the Collector and decodes what it received. Must not be started again afterwards."""
        self.stop()
        if self.decoded is None:
            self.decoded = [s for o in self.outputs if o.stat().st_size for s in otlp_decode.decode(str(o))]
        return self.decoded


class Recorder:
    """An HTTP server that keeps the body of every POST. Answers with `status`, which a test may change at any time."""

    def __init__(self, status=200):
        self.bodies = []
        self.status = status
        recorder = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_POST(self):
                recorder.bodies.append(self.rfile.read(int(self.headers["content-length"])))
                self.send_response(recorder.status)
                self.send_header("content-length", "0")
                self.end_headers()

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


# ---- what exporters wrote --------------------------------------------------------------------------


def folded(path):
    """{stack: sum of its values} of a file of folded stacks."""
    out = {}
    for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
        stack, value = line.rsplit(" ", 1)
        out[stack] = out.get(stack, 0) + int(value)
    return out


def _varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def _fields(data):
    """(number, value) of each field of a protobuf message; length-delimited fields stay bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        if key & 7 == 0:
            value, at = _varint(data, at)
        elif key & 7 == 2:
            size, at = _varint(data, at)
            value, at = data[at:at + size], at + size
            assert len(value) == size, "cut short"
        else:
            raise AssertionError(f"wire type {key & 7}")
        yield key >> 3, value


def pprof_sum(data):
    """{sample type: sum of its values} of a gzipped pprof profile. DATA: a path or bytes. Field numbers: google/pprof,
    proto/profile.proto."""
    raw = gzip.decompress(data if isinstance(data, bytes) else pathlib.Path(data).read_bytes())
    types, sums, strings = [], [], []
    for number, value in _fields(raw):
        if number == 1:
            types.append(dict(_fields(value)).get(1, 0))
        elif number == 2:
            values = []
            for n, v in _fields(value):
                if n == 2 and isinstance(v, bytes):
                    at = 0
                    while at < len(v):
                        one, at = _varint(v, at)
                        values.append(one)
                elif n == 2:
                    values.append(v)
            sums = [a + b for a, b in zip(sums or [0] * len(values), values, strict=True)]
        elif number == 6:
            strings.append(value.decode())
    return dict(zip([strings[t] for t in types], sums or [0] * len(types), strict=True))


def _numbers(message, field):
    """The values of a repeated integer FIELD, packed or not."""
    for n, v in _fields(message):
        if n == field and isinstance(v, bytes):
            at = 0
            while at < len(v):
                one, at = _varint(v, at)
                yield one
        elif n == field:
            yield v


def pprof_samples(path):
    """[(pid, samples, ns of CPU time)], one for each Sample message of a profile. Field numbers as in pprof_sum()."""
    out, strings = [], []
    raw = gzip.decompress(pathlib.Path(path).read_bytes())
    for number, value in _fields(raw):
        if number == 6:
            strings.append(value.decode())
    for number, value in _fields(raw):
        if number != 2:
            continue
        count, ns = _numbers(value, 2)
        labels = [dict(_fields(v)) for n, v in _fields(value) if n == 3]
        pid = next(label.get(3, 0) for label in labels if strings[label[1]] == "pid")
        out.append((pid, count, ns))
    return out


# ---- a container, as the kernel shows it -----------------------------------------------------------


def hierarchies():
    """{controllers: mount point} of every cgroup hierarchy; the key of version 2 is ""."""
    out = {}
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        left, right = line.split(" - ")
        kind, _, options = right.split(" ", 2)
        mount = left.split()[4]
        if kind == "cgroup2":
            out.setdefault("", mount)
        elif kind == "cgroup":
            names = [o for o in options.split(",") if o not in ("rw", "ro")]
            out.setdefault(",".join(names), mount)
    return out


class ContainerCgroup:
    """The cgroup directories of a container, as the kubelet makes them. WHICH: hierarchies; None: all that allow it."""

    def __init__(self, path, which=None):
        self.made, self.leaves = [], []
        for controllers, mount in hierarchies().items():
            if which is not None and controllers not in which:
                continue
            self._make(controllers, mount, path)
        if not self.leaves:
            self.close()
            raise FileNotFoundError(f"no cgroup hierarchy of {which}")

    def _make(self, controllers, mount, path):
        at, before = mount, len(self.made)
        try:
            for part in path.strip("/").split("/"):
                parent, at = at, os.path.join(at, part)
                if not os.path.isdir(at):
                    os.mkdir(at)
                    self.made.append(at)
                if "cpuset" in controllers.split(","):  # a cpuset without CPUs and memory nodes accepts no process
                    for name in ("cpuset.cpus", "cpuset.mems"):
                        text = pathlib.Path(parent, name).read_text()
                        pathlib.Path(at, name).write_text(text)
            self.leaves.append(at)
        except OSError:
            while len(self.made) > before:
                os.rmdir(self.made.pop())

    def enter(self, pid):
        for leaf in self.leaves:
            pathlib.Path(leaf, "cgroup.procs").write_text(str(pid))

    def close(self):
        for path in reversed(self.made):
            wait_until(f"{path} is empty", lambda path=path: _rmdir(path), 20)


def _rmdir(path):
    try:
        os.rmdir(path)
    except FileNotFoundError:
        pass
    except OSError:
        return False
    return True


@contextlib.contextmanager
def contained(path, name, *arguments, which=None, seconds=600):
    """Runs a workload in the container cgroup PATH."""
    cgroup = ContainerCgroup(path, which)
    try:
        with workload.Workload(name, *arguments, seconds=seconds) as w:
            cgroup.enter(w.pid)
            yield w
    finally:
        cgroup.close()


# ---- HTTP ------------------------------------------------------------------------------------------


def http_get(url, timeout=60):
    """(status, content type, text) of a GET; None when there is no answer."""
    try:
        with urllib.request.urlopen(url, timeout=timeout) as answer:
            return answer.status, answer.headers.get("content-type"), answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers.get("content-type"), error.read().decode()
    except OSError:
        return None


def go():
    """The path of the go command, or None."""
    return shutil.which("go") or next((p for p in ("/usr/local/go/bin/go",) if os.access(p, os.X_OK)), None)


def values(samples):
    return sum(s["value"] for s in samples)


def dump(thing):
    return json.dumps(thing, indent=1, default=str)[:3000]
