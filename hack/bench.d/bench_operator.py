# SPDX-License-Identifier: Apache-2.0
"""What the operator costs in a large cluster: with the pods of a real API server, and with a greater number of replayed pods.

bench_operator_cluster replays lists and watches of pods, nodes and namespaces, by the same HTTP/2 library as the API
server uses; it passes all other requests on to a real API server. The operator is the unmodified release, with its
ServiceAccount's token and the roles that it ships with. "Client CPU" is the operator's user and system time, from exec to
ready. Each figure is the median of several runs."""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

import envtest
from ports import free_port

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCE = ROOT / "hack/bench.d/bench_operator_cluster"
NAMESPACE = "kiln-system"
CONFIG = "/apis/profiling.kiln.dev/v1alpha1/clusterprofilingconfigs/cluster"
STARTS = 20  # pods started per second, each with 5 events, and one event of the pod that it replaces
CONFIGS, TEAMS = 1000, 400  # TEAMS: the number of namespaces in bench_operator_cluster
RELABELS = 40  # namespaces whose labels change in one measurement
MIB = 1 << 20


def build_cluster(directory, source=SOURCE):
    if not shutil.which("go"):
        raise RuntimeError("no Go: it builds the API server and the replay")
    program = os.path.join(directory, source.name)
    done = subprocess.run(["go", "build", "-o", program, "."], cwd=source, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-500:])
    return program


def binary():
    """Path of the operator's program: KILN_OPERATOR, or else the release."""
    path = os.environ.get("KILN_OPERATOR", str(ROOT / "build/release/bin/kiln-operator"))
    if not os.access(path, os.X_OK):
        raise RuntimeError(f"{path} is not built")
    return path


def cpu_of(pid):
    """CPU time of all threads of the process PID, in seconds."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="utf-8") as f:
            total += int(f.read().split()[0])
    return total / 1e9


class Operator:
    def __init__(self, kubeconfig, directory, *flags):
        self.health, self.metrics_port = free_port(), free_port()
        self.log = os.path.join(directory, "operator.log")
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [binary(), "--kubeconfig", kubeconfig, "--namespace", NAMESPACE, "--health-address",
                 f"127.0.0.1:{self.health}", "--metrics-address", f"127.0.0.1:{self.metrics_port}", *flags],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, "POD_NAME": "kiln-operator-0"})
        self.started = time.monotonic()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _get(self, port, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.read().decode()

    def wait_ready(self, timeout):
        """Waits until the operator is ready, for TIMEOUT seconds at most; returns the seconds since its start."""
        while True:
            if self.process.poll() is not None or time.monotonic() - self.started > timeout:
                with open(self.log, encoding="utf-8") as f:
                    raise RuntimeError(f"the operator is not ready: {f.read()[-300:]}")
            with contextlib.suppress(OSError):  # HTTPError, the answer "not ready", is an OSError too
                self._get(self.health, "/readyz")
                return time.monotonic() - self.started
            time.sleep(0.05)

    def metrics(self):
        pairs = (line.rsplit(" ", 1) for line in self._get(self.metrics_port, "/metrics").splitlines()
                 if not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    def cpu(self):
        return cpu_of(self.process.pid)

    def memory(self):
        """(current RSS, peak RSS) in MiB."""
        with open(f"/proc/{self.process.pid}/status", encoding="utf-8") as f:
            said = dict(line.split(":", 1) for line in f)
        return int(said["VmRSS"].split()[0]) / 1024, int(said["VmHWM"].split()[0]) / 1024


class Cluster(envtest.EnvTest):
    def kubeconfig_of(self, server, directory):
        """Writes a kubeconfig with a token of the operator's ServiceAccount for SERVER, and returns its path."""
        token, path = os.path.join(directory, "token"), os.path.join(directory, "kubeconfig")
        with open(token, "w", encoding="utf-8") as f:
            f.write(self.token(NAMESPACE, "kiln-operator", seconds=7200))
        with open(path, "w", encoding="utf-8") as f:
            json.dump({"apiVersion": "v1", "kind": "Config", "current-context": "x",
                       "clusters": [{"name": "x", "cluster": {"server": server, "certificate-authority": self.ca}}],
                       "users": [{"name": "x", "user": {"tokenFile": token}}],
                       "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}]}, f)
        return path

    def config(self):
        return json.loads(self.request(CONFIG))

    def change_policy(self, value):
        """Sets the tracer of Python to VALUE. The same pods match as before, but the operator has to evaluate every pod."""
        self.request(CONFIG, "PATCH", {"spec": {"defaults": {"tracers": {"python": value}}}},
                     {"Content-Type": "application/merge-patch+json"})


def wait(what, condition, timeout=60):
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"no {what} after {timeout} s")
        time.sleep(0.02)


def measure_policy(cluster, operator, pods):
    """Changes the policy of all pods. Returns the CPU seconds of the operator for evaluating every pod, and the seconds until
    the status shows the result."""
    def observed():
        thing = cluster.config()
        seen = [c["observedGeneration"] for c in thing.get("status", {}).get("conditions", [])]
        return seen and min(seen) == thing["metadata"]["generation"] and thing["status"].get("configHash") != before

    value = cluster.config()["spec"].get("defaults", {}).get("tracers", {}).get("python")
    before = cluster.config().get("status", {}).get("configHash")
    time.sleep(2)
    cpu = operator.cpu()
    time.sleep(2)
    idle, cpu, at = (operator.cpu() - cpu) / 2, operator.cpu(), time.monotonic()
    cluster.change_policy("Enabled" if value == "Disabled" else "Disabled")
    wait("status of a changed policy", observed)
    shown = time.monotonic() - at
    time.sleep(2)
    return operator.cpu() - cpu - idle * (time.monotonic() - at), shown


def transport(server, ca):
    """CPU seconds of curl(1) for receiving all pods and discarding them: the share of TLS, HTTP/2 and the kernel on this
    machine, with the same libraries as the operator uses."""
    pods = "/api/v1/pods?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    process = subprocess.Popen(["curl", "-sSfN", "--noproxy", "*", "--cacert", ca, "-o", "/dev/null", "-H",
                                "Accept: application/vnd.kubernetes.protobuf;stream=watch", "-H",
                                "Authorization: Bearer none", server + pods], stdin=subprocess.DEVNULL)
    try:
        before, cpu = -1, 0
        while cpu > before + 0.001:
            time.sleep(1)
            before, cpu = cpu, cpu_of(process.pid)
        return cpu
    finally:
        process.kill()
        process.wait()


def measure(cluster, server, churn, pods, seconds, timeout):
    """One run of the operator at SERVER; returns its figures by name. CHURN(SECONDS) starts pods during that time."""
    with tempfile.TemporaryDirectory(prefix="kiln-bench-") as d, \
            Operator(cluster.kubeconfig_of(server, d), d) as operator:
        got = {"synced": operator.wait_ready(timeout), "cpu": operator.cpu()}
        got["at sync"], got["peak"] = operator.memory()
        wait("lead", lambda: operator.metrics()["leader_election_master_status{name=\"kiln-operator\"}"] == 1)
        time.sleep(4)  # the allocator returns free memory to the kernel within a second
        got["steady"], got["peak later"] = operator.memory()
        known = operator.metrics()
        if abs(known["kiln_pods"] - pods) > 10:
            raise RuntimeError(f"{known['kiln_pods']:.0f} pods in the cache, not {pods}")
        got["pod bytes"] = known["kiln_pod_cache_bytes"] / pods
        got["bytes"] = got["pod bytes"] + known["kiln_string_cache_bytes"] / pods
        cpu, at = operator.cpu(), time.monotonic()
        churn(seconds)
        got["share"] = (operator.cpu() - cpu) / (time.monotonic() - at)
        after = operator.metrics()
        events = 'kiln_informer_events_total{kind="pods"}'
        got["events"] = (after[events] - known[events]) / seconds
        got["after churn"], got["peak churn"] = operator.memory()
        got["policy cpu"], got["policy seen"] = measure_policy(cluster, operator, pods)
        got["steady at last"], got["peak at last"] = operator.memory()
        if os.environ.get("KILN_BENCH_VERBOSE"):
            print({k: round(v, 3) for k, v in got.items()}, flush=True)
        return got


def tell(table, label, pods, runs, goals):
    got = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    print(f"  ({len(runs)} runs: CPU until synced {' '.join(format(run['cpu'], '.2f') for run in runs)} s)")
    goals = goals or dict.fromkeys(("cpu", "bytes", "transient", "rss", "share"))
    table.add(f"operator, {label}: client CPU until synced", got["cpu"], "s", goals["cpu"])
    table.add("  time until synced", got["synced"], "s")
    table.add("  CPU a pod", got["cpu"] / pods * 1e6, "us")
    table.add("  bytes kept a pod, with indexes and strings", got["bytes"], "B", goals["bytes"])
    table.add("  of them records and indexes", got["pod bytes"], "B")
    table.add("  RSS, steady", got["steady"], "MiB", goals["rss"])
    table.add("  RSS, peak until synced", got["peak"], "MiB", goals["rss"])
    table.add("  RSS, peak until the end (churn, policies)", got["peak at last"], "MiB", goals["rss"])
    table.add("  transient: peak of the sync above steady", max(got["peak"], got["peak later"]) - got["steady"], "MiB",
              goals["transient"])
    table.add(f"  CPU share of a core, {STARTS} starts, {got['events']:.0f} events a second", got["share"], "core",
              goals["share"])
    table.add("  CPU of a changed policy, every pod anew", got["policy cpu"], "s")
    table.add("  a changed policy until its status says so", got["policy seen"], "s")


@contextlib.contextmanager
def replay(program, cluster, pods, nodes, *flags):
    process = subprocess.Popen([program, "replay", "--pki", os.path.join(cluster.dir, "pki"), "--server", cluster.url,
                                "--pods", str(pods), "--nodes", str(nodes), "--workloads", str(max(pods // 20, 400)),
                                *flags], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        url = process.stdout.readline().strip()
        if not url:
            raise RuntimeError("the replay does not start")
        yield url, process.pid
    finally:
        process.kill()
        process.wait()


def bench_real(table, cluster, program, pods, seconds, repeat):
    def run(command, *arguments):
        done = subprocess.run([program, command, "--pki", os.path.join(cluster.dir, "pki"), "--server", cluster.url,
                               "--pods", str(pods), "--nodes", str(pods // 28), "--workloads", str(pods // 20),
                               "--teams", "100", *map(str, arguments)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr.strip()[-400:])
        return float(done.stdout)

    took, runs = run("load"), []
    print(f"  (the API server took {pods / took:.0f} pods a second)")
    for i in range(repeat):
        runs.append(measure(cluster, cluster.url, lambda n, i=i: run("churn", "--seconds", n, "--starts", STARTS,
                                                                     "--round", i), pods, seconds, 300))
    tell(table, f"{pods} pods of a real API server", pods, runs, None)


def bench_replayed(table, cluster, program, pods, seconds, repeat, label, goals, *flags):
    runs, alone = [], []
    for _ in range(repeat):
        with replay(program, cluster, pods, max(pods // 30, 1), *flags) as (url, _):
            def churn(n, url=url):
                query = f"/bench/churn?starts={STARTS}&seconds={n}"
                done = subprocess.run(["curl", "-sSf", "--noproxy", "*", "--cacert", cluster.ca, url + query],
                                      capture_output=True, text=True, check=False)
                if done.returncode:
                    raise RuntimeError(done.stderr.strip())
            if not flags:
                alone.append(transport(url, cluster.ca))
            runs.append(measure(cluster, url, churn, pods, seconds, 300))
    tell(table, f"{pods} pods replayed, {label}", pods, runs, goals)
    if alone:
        table.add("  CPU of curl(1) for the same bytes, in the same minutes", statistics.median(alone), "s")


def status_writes(cluster, since):
    return [w for w in cluster.writes(since, f"system:serviceaccount:{NAMESPACE}:kiln-operator") if w[2].endswith("/status")]


def bench_configs(table, cluster, program, pods, seconds):
    """Many ProfilingConfigs in many namespaces, whose pod counts change all the time, and namespaces whose labels change."""
    def apps(team, config):
        """Names of a quarter of the apps in the namespace TEAM; CONFIG, 0 to 3: which quarter."""
        return [f"service-{w}-api" for w in range(team, pods // 20, TEAMS)][config::4]

    teams = range(CONFIGS // 4)
    cluster.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"team-{n}"}} for n in teams])
    cluster.apply([{"apiVersion": "profiling.kiln.dev/v1alpha1", "kind": "ProfilingConfig",
                    "metadata": {"name": f"config-{i}", "namespace": f"team-{n}"},
                    "spec": {"podSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": apps(n, i)}]},
                             "profile": {"sampling": {"hz": 20 + i}}}} for n in teams for i in range(4)], timeout=600)
    with replay(program, cluster, pods, max(pods // 30, 1)) as (url, _), tempfile.TemporaryDirectory(
            prefix="kiln-bench-") as d, Operator(cluster.kubeconfig_of(url, d), d) as operator:
        def ask(path):
            subprocess.run(["curl", "-sSf", "--noproxy", "*", "--cacert", cluster.ca, url + path], check=True,
                           capture_output=True)

        operator.wait_ready(300)
        wait("statuses", lambda: len([c for c in cluster.get("pcfg", "-A")["items"] if "status" in c]) == CONFIGS, 300)
        time.sleep(30)
        since = cluster.mark()
        ask(f"/bench/churn?starts={STARTS}&seconds={seconds}")
        table.add(f"operator, {pods} pods, {CONFIGS} configs: status writes a second, {STARTS} starts a second",
                  len(status_writes(cluster, since)) / seconds, "1/s", 1)
        costs = []
        for first in range(0, 5 * RELABELS, RELABELS):
            time.sleep(3)
            cpu, at = operator.cpu(), time.monotonic()
            time.sleep(3)
            idle, cpu, at = (operator.cpu() - cpu) / (time.monotonic() - at), operator.cpu(), time.monotonic()
            for n in range(first, first + RELABELS):
                ask(f"/bench/relabel?team={n}")
            time.sleep(1)
            costs.append((operator.cpu() - cpu - idle * (time.monotonic() - at)) * 1000 / RELABELS)
        table.add("  CPU of a namespace's label that changes", statistics.median(costs), "ms", 5)


def bench(table, quick):
    real, replayed, seconds, repeat = (2000, 15000, 10, 1) if quick else (20000, 150000, 30, 3)
    goals = {"cpu": 3 * replayed / 150000, "bytes": 550, "transient": 1, "rss": 130 * max(replayed / 150000, 0.2),
             "share": 0.2}
    only = os.environ.get("KILN_BENCH_OPERATOR", "real watch-list pages configs").split()
    with tempfile.TemporaryDirectory(prefix="kiln-bench-") as d, Cluster(audit="configs" in only) as cluster:
        program = build_cluster(d)
        cluster.kubectl("apply", "-k", str(ROOT / "kustomize/overlays/default"))
        if "watch-list" in only:
            bench_replayed(table, cluster, program, replayed, seconds, repeat, "WatchList", goals)
        if "pages" in only:
            bench_replayed(table, cluster, program, replayed, seconds, repeat, "pages of 500", goals, "--no-watch-list")
        if "configs" in only:
            bench_configs(table, cluster, program, replayed, 2 * seconds)
        if "real" in only:
            bench_real(table, cluster, program, real, seconds, repeat)
