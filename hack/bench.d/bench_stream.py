# SPDX-License-Identifier: Apache-2.0
"""What the node stream costs in a large cluster: the release's operator, a replayed cluster (bench_operator_cluster) and
one agent for each node (bench_stream_agents), over TLS on loopback.

All of them share this machine, so the CPU time of each is shown. The replay answers TokenReviews; the configs are those of
a real API server. The delay of a pod's event is the agent's clock when it arrives, minus the time that the replay wrote
into the event. A policy's change is timed from before the PATCH until an agent has its last message about it."""
import contextlib
import json
import os
import subprocess
import tempfile
import time

import bench_operator as base

SOURCE = base.SOURCE.parent / "bench_stream_agents"
POLICIES = 5


def certificate(directory):
    """Makes a CA and a certificate for a server on 127.0.0.1; returns the paths of CA, certificate and key."""
    def run(*arguments):
        subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    run("req", "-x509", *curve, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=ca")
    run("req", *curve, "-keyout", "key.pem", "-out", "csr.pem", "-subj", "/CN=kiln-operator")
    with open(os.path.join(directory, "ext"), "w", encoding="utf-8") as f:
        f.write("subjectAltName=IP:127.0.0.1\n")
    run("x509", "-req", "-in", "csr.pem", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", "cert.pem",
        "-days", "2", "-extfile", "ext")
    return [os.path.join(directory, name) for name in ("ca.pem", "cert.pem", "key.pem")]


class Agents:
    def __init__(self, program, address, ca, count):
        self.process = subprocess.Popen([program, "--address", address, "--ca", ca, "--agents", str(count)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def say(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline() or '{"error": "the agents are gone"}')
        if "error" in answer:
            raise RuntimeError(answer["error"])
        if answer.get("problems"):
            print(f"  (agents: {answer['problems']})", flush=True)
        return answer

    def cpu(self):
        return base.cpu_of(self.process.pid)


class Meter:
    """CPU use of operator, agents and replay between enter and exit: seconds, and share of a core."""

    def __init__(self, operator, agents, replay):
        self.read = lambda: (operator.cpu(), agents.cpu(), base.cpu_of(replay))

    def __enter__(self):
        self.began, self.was = time.monotonic(), self.read()
        return self

    def __exit__(self, *_):
        self.took = time.monotonic() - self.began
        self.seconds = [now - was for now, was in zip(self.read(), self.was)]
        self.share = [s / self.took for s in self.seconds]


def measure_broadcast(cluster, agents, count):
    """Changes the cluster's policy, and so the policy of every pod; returns the agents' figures when all COUNT have it."""
    agents.say("mark")
    value = cluster.config()["spec"].get("defaults", {}).get("tracers", {}).get("python")
    since = time.time_ns()
    cluster.change_policy("Enabled" if value == "Disabled" else "Disabled")
    time.sleep(4)
    for _ in range(60):  # long, for a machine with other load
        got = agents.say("broadcast", since)
        if got["n"] == count:
            return got
        time.sleep(1)
    raise RuntimeError(f"{got['n']} of {count} agents heard of a policy's change")


def others(meter):
    return f"(agents {meter.share[1]:.2f}, replay {meter.share[2]:.2f} cores; load {os.getloadavg()[0]:.1f})"


def measure_cold(table, operator, agents, meter, label, goals):
    with meter:
        got = agents.say("connect", 1)
    table.add(f"  {label}: until the last snapshot", got["max"] / 1000, "s", goals["cold"])
    table.add("    until half of them", got["p50"] / 1000, "s")
    table.add("    operator's CPU", meter.seconds[0], "s")
    print(f"    {got['bytes'] / base.MIB:.0f} MiB of messages; {others(meter)}", flush=True)
    time.sleep(4)
    table.add("    RSS then", operator.memory()[0], "MiB", goals["rss"])


def measure_steady(table, agents, meter, seconds, churn, goals):
    with meter:
        time.sleep(seconds)
    table.add("  CPU share of a core, nothing changes", meter.share[0], "core")
    print(f"    {others(meter)}", flush=True)
    agents.say("mark")
    with meter:
        churn(seconds)
    got = agents.say("events")
    table.add(f"  CPU share of a core, {base.STARTS} starts a second", meter.share[0], "core", goals["share"])
    table.add("  watch event until the agent has it, p50", got["p50"], "ms")
    table.add("    p99", got["p99"], "ms", goals["event"])
    table.add("    the slowest", got["max"], "ms")
    print(f"    {got['n']} events; {others(meter)}", flush=True)
    if got["n"] < seconds * base.STARTS * 2:
        raise RuntimeError(f"{got['n']} of {seconds * base.STARTS * 3} events came")


def measure_policies(table, cluster, agents, meter, count, goals):
    runs = []
    for _ in range(POLICIES):
        with meter:
            runs.append(measure_broadcast(cluster, agents, count))
        runs[-1]["cpu"] = meter.seconds[0]
    runs.sort(key=lambda run: run["p99"])
    middle = runs[len(runs) // 2]
    table.add(f"  a changed policy until every agent has it, p50 ({POLICIES} runs)", middle["p50"], "ms")
    table.add("    p99, the run in the middle", middle["p99"], "ms", goals["broadcast"])
    table.add("    p99, the slowest run", runs[-1]["p99"], "ms", goals["broadcast"])
    table.add("    operator's CPU, with 4 s of standing by", middle["cpu"], "s")
    table.add("    bytes of messages, an agent", middle["bytes"] / count, "B")
    print(f"    {middle['updates']} messages; {others(meter)}", flush=True)


@contextlib.contextmanager
def words_of(operator):
    """Adds the state and the last log lines of the operator to an error, which an ended operator may have caused."""
    try:
        yield
    except (RuntimeError, KeyError, OSError) as e:
        status = operator.process.poll()
        with open(operator.log, encoding="utf-8") as f:
            raise RuntimeError(f"{str(e)[:300]}; operator: {'runs' if status is None else f'status {status}'}: "
                               f"{f.read()[-400:]}") from e


def measure(table, cluster, url, process, program, pods, count, seconds):
    goals = {"cold": 30, "rss": 500 * max(count / 5000, 0.2), "share": 0.2, "event": 10, "broadcast": 1000}

    def churn(n):
        subprocess.run(["curl", "-sSf", "--noproxy", "*", "--cacert", cluster.ca,
                        f"{url}/bench/churn?starts={base.STARTS}&seconds={n}"], check=True, capture_output=True)

    with contextlib.ExitStack() as stack:
        d = stack.enter_context(tempfile.TemporaryDirectory(prefix="kiln-bench-"))
        ca, cert, key = certificate(d)
        address = f"127.0.0.1:{base.free_port()}"
        operator = stack.enter_context(base.Operator(cluster.kubeconfig_of(url, d), d, "--stream-address", address,
                                                     "--stream-cert", cert, "--stream-key", key))
        operator.wait_ready(300)
        stack.enter_context(words_of(operator))
        base.wait("lead", lambda: operator.metrics()["leader_election_master_status{name=\"kiln-operator\"}"] == 1)
        time.sleep(4)
        table.add(f"node stream, {count} agents, {pods} pods: RSS before", operator.memory()[0], "MiB")
        agents = stack.enter_context(Agents(program, address, ca, count))
        meter = Meter(operator, agents, process)
        measure_cold(table, operator, agents, meter, "cold start, all at once", goals)
        measure_steady(table, agents, meter, seconds, churn, goals)
        measure_policies(table, cluster, agents, meter, count, goals)
        measure_cold(table, operator, agents, meter, "all cut and started anew", goals)
        table.add("  RSS, peak", operator.memory()[1], "MiB", goals["rss"])
        if os.environ.get("KILN_BENCH_VERBOSE"):
            print(json.dumps({k: v for k, v in operator.metrics().items() if "stream" in k and v}, indent=1))


def bench(table, quick):
    count, seconds = (500, 10) if quick else (5000, 30)
    with tempfile.TemporaryDirectory(prefix="kiln-bench-") as d, base.Cluster() as cluster:
        cluster_program, agents_program = base.build_cluster(d), base.build_cluster(d, SOURCE)
        cluster.kubectl("apply", "-k", str(base.ROOT / "kustomize/overlays/default"))
        both = f"--serviceaccount={base.NAMESPACE}:kiln-operator"  # one program with both roles
        cluster.kubectl("create", "clusterrolebinding", "both-roles", "--clusterrole=kiln-stream", both)
        cluster.kubectl("create", "rolebinding", "both-roles", "-n", base.NAMESPACE, "--role=kiln-stream", both)
        with base.replay(cluster_program, cluster, 30 * count, count) as (url, process):
            measure(table, cluster, url, process, agents_program, 30 * count, count, seconds)
