# SPDX-License-Identifier: Apache-2.0
"""How the agent starts, ends, and refuses: exit codes, signals, files and ports that cannot be had."""
import os
import resource
import shutil
import signal
import socket
import subprocess
import time

import pytest

from parts import (SANITIZER, WAIT, agent as kiln, folded, free_port, period, pprof_sum, profiling)

KUBECONFIG = """apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:%d"}}]
users: [{name: u, user: {token: kiln-secret-of-the-test}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""
NEEDED = ("bpf", "perfmon", "sys_ptrace", "syslog", "dac_read_search", "checkpoint_restore")


def run(*arguments, prefix=(), **options):
    return subprocess.run([*prefix, kiln.binary(), *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, check=False, timeout=WAIT + 60, **options)


def logged(a):
    return [line for line in a.stderr().splitlines() if " error " in line or " warn " in line]


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_flushes_everything(agent, busy, tmp_path, signum):
    a = agent("--pid", busy.pid, "--samples-per-second", 97, "--reporter-interval", "60s", "--stdout", "--pprof-file",
              tmp_path / "x.pb.gz", "--folded-file", tmp_path / "x.folded")
    profiling(a)
    time.sleep(4)
    a.process.send_signal(signum)
    assert a.wait() == 0, a.stderr()
    want = sum(s.value for s in a.samples())
    assert want > 10
    assert sum(folded(tmp_path / "x.folded").values()) == want
    assert pprof_sum(tmp_path / "x.pb.gz")["samples"] == want
    assert sorted(os.listdir(tmp_path)) == ["x.folded", "x.pb.gz"], "a temporary file is left"
    assert logged(a) == []


def catches(pid, signum):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        caught = next(line.split()[1] for line in f if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (signum - 1) & 1)


def has_bpf(pid):
    links = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            links.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except OSError:
            pass
    return any("bpf" in link for link in links)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
@pytest.mark.parametrize("loading", [False, True], ids=["before-the-load", "while-loading"])
def test_a_signal_during_the_start_ends_it_with_0(signum, loading):
    """Loading the BPF programs takes most of a second; a signal during that time ends the agent in order, too."""
    p = subprocess.Popen([kiln.binary(), "--stdout", "--reporter-interval", "60s"], stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + WAIT
        while not catches(p.pid, signum):
            assert time.monotonic() < until and p.poll() is None
        assert not has_bpf(p.pid), "signals are waited for only after the load began"
        while loading and not has_bpf(p.pid):
            assert time.monotonic() < until and p.poll() is None
        p.send_signal(signum)
        out, err = p.communicate(timeout=WAIT)
    finally:
        p.kill()
        p.wait()
    assert p.returncode == 0, err
    assert "New Sample" not in out and "profiling at" not in err


def test_duration_ends_with_0_and_the_last_window(agent, busy, tmp_path):
    a = agent("--pid", busy.pid, "--samples-per-second", 97, "--duration", "3s", "--pprof-file", tmp_path / "x.pb.gz")
    assert a.wait() == 0, a.stderr()
    got = pprof_sum(tmp_path / "x.pb.gz")
    assert got["samples"] > 10
    assert set(got) == {"samples", "cpu"} and got["cpu"] == got["samples"] * period(97)


def test_without_a_destination_it_shows_the_top_and_writes_a_file(busy, tmp_path):
    done = run("--duration", "3s", "--reporter-interval", "1s", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "leaf_" in done.stdout
    assert pprof_sum(tmp_path / "kiln.pb.gz")["samples"] > 0


def test_a_second_interrupt_does_not_wait(agent, busy):
    """The receiver accepts connections but never answers, so that the final flush would last its full ten seconds."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        a = agent("--collection-agent", f"127.0.0.1:{silent.getsockname()[1]}", "--disable-tls", "--reporter-interval", "1s")
        profiling(a)
        time.sleep(3)
        a.process.send_signal(signal.SIGINT)
        time.sleep(1)
        assert a.process.poll() is None, "it does not even try to flush"
        a.process.send_signal(signal.SIGINT)
        assert a.wait(5 if not SANITIZER else 30) == 130
        assert "second interrupt" in a.stderr()


def test_nobody_there_at_the_end_does_not_hold_it_for_ever(agent, busy):
    a = agent("--collection-agent", f"127.0.0.1:{free_port()}", "--disable-tls", "--reporter-interval", "1s", "--duration", "2s")
    assert a.wait(60) == 0, a.stderr()
    assert "unreachable" in a.stderr()


@pytest.mark.parametrize("where", ["--stdout", ""], ids=["text", "top"])
def test_a_reader_that_leaves_ends_it_quietly(where, busy, tmp_path):
    """As in `kiln-agent | head -1`. Without --stdout the agent also writes a file, and goes on with that."""
    more = [] if where else ["--duration", "6s"]
    out, into = os.pipe()
    with open(tmp_path / "err", "wb") as err:
        p = subprocess.Popen([kiln.binary(), *filter(None, [where]), "--reporter-interval", "1s", *more], stdin=subprocess.DEVNULL,
                             stdout=into, stderr=err, cwd=tmp_path)
    os.close(into)
    try:
        assert os.read(out, 1)
        os.close(out)
        assert p.wait(WAIT) == 0, (tmp_path / "err").read_text()
    finally:
        p.kill()
        p.wait()
    text = (tmp_path / "err").read_text()
    assert " error " not in text, text
    if not where:
        assert pprof_sum(tmp_path / "kiln.pb.gz")["samples"] > 0


def test_a_full_disk_is_an_error_at_the_end(busy):
    with open("/dev/full", "wb") as full:
        done = subprocess.run([kiln.binary(), "--stdout", "--duration", "2s"], stdin=subprocess.DEVNULL, stdout=full,
                              stderr=subprocess.PIPE, text=True, timeout=WAIT + 60, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("No space left on device") == 1
    assert "kiln-agent: exporters.customprofilesexporter" in done.stderr


@pytest.fixture
def read_only(tmp_path):
    path = tmp_path / "read-only"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "kiln-test", path], check=True)
    yield path
    subprocess.run(["umount", path], check=True)


def one_line(done, code, *words):
    lines = [line for line in done.stderr.splitlines() if not line.startswith("20") or " info " not in line]
    assert done.returncode == code, done.stderr
    assert len(lines) == 1 and lines[0].startswith("kiln-agent: "), done.stderr
    for word in words:
        assert str(word) in lines[0], lines[0]


@pytest.mark.parametrize("flag, key", [("--pprof-file", "pprof_file"), ("--folded-file", "folded_file")])
def test_a_file_that_cannot_be_written_is_told_at_the_start(flag, key, tmp_path, read_only):
    missing = tmp_path / "missing" / "x"
    one_line(run(flag, missing), 2, f"exporters.{key}", "path", missing, "No such file or directory")
    one_line(run(flag, read_only / "x"), 2, f"exporters.{key}", "path", read_only / "x", "Read-only file system")
    one_line(run(flag, tmp_path), 2, f"exporters.{key}", "path", tmp_path, "directory")


def test_a_directory_that_goes_away_is_an_error_at_the_end(agent, busy, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    a = agent("--folded-file", gone / "x", "--duration", "4s")
    profiling(a)
    gone.rmdir()
    assert a.wait() == 1, a.stderr()
    assert "kiln-agent: exporters.folded_file" in a.stderr()


CONFIG = """
receivers:
  profiling: {}
exporters:
  %s
extensions:
  %s
service:
  extensions: [%s]
  pipelines:
    profiles:
      receivers: [profiling]
      exporters: [%s]
"""


def configured(tmp_path, exporter="debug:", extension="", name="", more=()):
    path = tmp_path / "c.yaml"
    path.write_text(CONFIG % (exporter, extension, name, exporter.split(":")[0]))
    return run("--config", path, "--duration", "1s", *more)


def test_other_files_that_are_not_there(tmp_path):
    one_line(configured(tmp_path, "debug: {output: /nowhere/x}"), 2, "exporters.debug", "output", "/nowhere/x")
    for key in ("otlp_grpc", "otlp_http"):
        endpoint = "x:1" if key == "otlp_grpc" else "https://x"
        for tls in ("{ca_file: /nowhere}", "{cert_file: /nowhere, key_file: /nowhere}"):
            done = configured(tmp_path, f'{key}: {{endpoint: "{endpoint}", tls: {tls}}}')
            one_line(done, 2, f"exporters.{key}", "tls", "/nowhere")


@pytest.mark.parametrize("extension", ["health_check", "pprof"])
def test_a_port_in_use_is_told(tmp_path, extension):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = configured(tmp_path, extension=f'{extension}: {{endpoint: "{address}"}}', name=extension)
    one_line(done, 1, f"extensions.{extension}.endpoint", address, "ddress already in use")


# ---- privileges --------------------------------------------------------------------------------------


@pytest.fixture
def copy(tmp_path_factory):
    """A copy of the agent that every user may read."""
    directory = tmp_path_factory.mktemp("bin")
    for path in (directory, directory.parent, directory.parent.parent):
        os.chmod(path, 0o755)
    return shutil.copy(kiln.binary(), directory / "kiln-agent")


def with_capabilities(copy, keep, *arguments, root=False):
    sets = ",".join(["-all"] + [f"+{c}" for c in keep])
    who = ["--reuid=65534", "--regid=65534", "--clear-groups", f"--ambient-caps={sets}"] if not root else []
    return subprocess.run(["setpriv", *who, f"--bounding-set={sets}", f"--inh-caps={sets}", copy, *arguments],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=WAIT, cwd="/tmp")


@pytest.mark.skipif(bool(SANITIZER), reason="says nothing about memory")
@pytest.mark.parametrize("lacking", NEEDED)
def test_the_missing_capability_is_named_and_no_other(copy, lacking):
    keep = [c for c in NEEDED if c != lacking]
    for how in (["--stdout", "--duration", "1s"], ["--check"]):
        done = with_capabilities(copy, keep, *how)
        one_line(done, 3, f"CAP_{lacking.upper()}")
        assert not [c for c in keep if f"CAP_{c.upper()}" in done.stderr], done.stderr


@pytest.mark.skipif(bool(SANITIZER), reason="says nothing about memory")
def test_without_root_all_of_them_are_named_in_one_line(copy):
    one_line(with_capabilities(copy, (), "--check"), 3, *(f"CAP_{c.upper()}" for c in NEEDED))


@pytest.mark.skipif(bool(SANITIZER), reason="says nothing about memory")
def test_check_tells_all_that_needs_no_privileges(copy):
    address = f"127.0.0.1:{free_port()}"
    done = with_capabilities(copy, (), "--check", "--collection-agent", address, "--disable-tls")
    one_line(done, 3, "CAP_BPF")
    rows = [(line[:13].strip(), line[14:]) for line in done.stdout.splitlines()]
    # The row "processes" appears only when the tests run in a container.
    assert [title for title, _ in rows if title and title != "processes"] == [
        "kernel", "privileges", "cgroups", "tracers", "pods", "exporter"], done.stdout
    told = dict(rows)
    assert told["privileges"].startswith("missing CAP_BPF (to load BPF programs), "), told
    assert "python" in told["tracers"], told
    assert told["exporter"].startswith(f"otlp_grpc: {address} is not reachable"), told


@pytest.mark.skipif(bool(SANITIZER), reason="says nothing about memory")
def test_root_without_them_is_told_too(copy):
    one_line(with_capabilities(copy, ("sys_ptrace",), "--check", root=True), 3, "CAP_BPF", "CAP_PERFMON")


@pytest.mark.skipif(bool(SANITIZER), reason="says nothing about memory")
@pytest.mark.parametrize("keep", [NEEDED, ("sys_admin", "perfmon", "sys_ptrace", "syslog", "dac_read_search")], ids=["exact", "sys_admin"])
def test_enough_capabilities_are_enough(copy, busy, keep):
    done = with_capabilities(copy, keep, "--stdout", "--duration", "2s")
    assert done.returncode == 0, done.stderr
    assert "New Sample" in done.stdout


def aborted_core(command, where, ready, **options):
    """Runs COMMAND in WHERE, aborts it after READY seconds; the path of its core file, or None."""
    p = subprocess.Popen(command, cwd=where, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                         preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY,) * 2), **options)
    try:
        time.sleep(ready)
        p.send_signal(signal.SIGABRT)
        assert p.wait(WAIT) == -signal.SIGABRT
    finally:
        p.kill()
    cores = [name for name in os.listdir(where) if name.startswith("core")]
    return os.path.join(where, cores[0]) if cores else None


@pytest.mark.skipif(SANITIZER != "", reason="sanitizers take SIGABRT")
def test_no_core_file_tells_a_secret(tmp_path):
    for name in ("other", "agent", "operator"):
        (tmp_path / name).mkdir()
    if not aborted_core(["sleep", "60"], tmp_path / "other", 0.3):
        pytest.skip("this machine writes no core files")
    secret = {**os.environ, "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer kiln-secret-of-the-test"}
    command = [kiln.binary(), "--collection-agent", f"127.0.0.1:{free_port()}", "--disable-tls"]
    assert aborted_core(command, tmp_path / "agent", 3, env=secret) is None
    operator = [os.path.join(os.path.dirname(kiln.binary()), "kiln-operator"), "--kubeconfig", str(tmp_path / "config")]
    (tmp_path / "config").write_text(KUBECONFIG % free_port())
    assert aborted_core(operator, tmp_path / "operator", 2) is None
