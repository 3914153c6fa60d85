# SPDX-License-Identifier: Apache-2.0
"""hack/node from Python: starts one real Kubernetes node, and the queries that the tests need."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/integration/lib"))
from kiln import textdump  # noqa: E402

SCRIPT = str(ROOT / "hack/node")
NAMESPACE = "kiln-system"
AGENTS = "app.kubernetes.io/name=kiln-agent"
OPERATORS = "app.kubernetes.io/name in (kiln-operator,kiln-stream)"  # both roles of the operator, two replicas each
DEPLOYMENTS = ("kiln-operator", "kiln-stream")
TIMEOUT = 300  # seconds; the waits take a few seconds on an idle machine


def missing():
    """What hack/node reports as missing on this machine, or None."""
    done = subprocess.run([SCRIPT, "check"], capture_output=True, text=True)
    return done.stderr.strip() if done.returncode else None


def programs():
    """The folder with kiln-agent and kiln-operator: KILN_BIN (set by ctest and hack/e2e), else the release build."""
    return pathlib.Path(os.environ.get("KILN_BIN") or ROOT / "build/release/bin")


def run(*command, timeout=TIMEOUT, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=timeout, **options)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}: status {done.returncode}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def dump_lines(text):
    """The lines of the text dump in a pod's log TEXT, without the agent's own log lines between them."""
    return [line for line in text.splitlines() if not re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z (debug|info|warn|error) ", line)]


def wait_for(what, question, timeout=TIMEOUT, interval=0.2):
    """Calls QUESTION until it returns something true, and returns that. The exceptions listed below count as "not yet"."""
    deadline, last = time.monotonic() + timeout, None
    while time.monotonic() < deadline:
        try:
            last = question()
            if last:
                return last
        except (RuntimeError, KeyError, IndexError, TypeError) as e:
            last = e
        time.sleep(interval)
    raise AssertionError(f"{what}: not within {timeout} s; last: {last!r}")


class Cluster:
    """One node, from up() to down(). The node is also taken down when the test's process ends."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="kiln-e2e-")
        self.node_dir = self.dir + "/node"
        self.times = []  # (what, seconds)

    def up(self):
        since = time.monotonic()
        try:
            run(SCRIPT, "up", self.node_dir, "--with", os.getpid(), timeout=1800)
        except BaseException:
            self.down()
            raise
        self.took("node Ready", since)
        return self

    def down(self):
        if os.path.exists(self.node_dir + "/node.state"):
            run(SCRIPT, "down", self.node_dir)
        shutil.rmtree(self.dir, ignore_errors=True)

    def took(self, what, since):
        self.times.append((what, time.monotonic() - since))

    def images(self):
        """Makes and imports the images of Kiln and of the busy pods."""
        run(ROOT / "hack/images", self.dir, programs())
        busy = self.dir + "/kiln-busy"
        run("gcc", "-O1", "-g", "-fno-optimize-sibling-calls", "-o", busy, ROOT / "tests/e2e/busy.c")
        run(ROOT / "hack/node.d/image.py", "--name", "kiln.local/busy:1", "--output", self.dir + "/busy.tar",
            "--entrypoint", "/usr/local/bin/kiln-busy", "--user", "65532:65532", busy + "=/usr/local/bin/kiln-busy")
        run(SCRIPT, "import", self.node_dir, *(f"{self.dir}/{n}.tar" for n in ("kiln-agent", "kiln-operator", "busy")))
        # Tag the image with its digest too, as a pull from a registry would.
        ctr = (SCRIPT, "run", self.node_dir, "--", "ctr", "-n", "k8s.io", "images")
        digest = run(*ctr, "ls", "name==kiln.local/busy:1").splitlines()[1].split()[2]
        run(*ctr, "tag", "kiln.local/busy:1", "kiln.local/busy@" + digest)

    # ---- kubectl

    def kubectl(self, *arguments, **options):
        return run(SCRIPT, "run", self.node_dir, "--", "kubectl", *arguments, **options)

    def get(self, *arguments):
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    def apply(self, thing):
        self.kubectl("apply", "-f", "-", input=json.dumps(thing))

    def patch(self, patch):
        self.kubectl("patch", "cpc", "cluster", "--type=merge", "-p", json.dumps(patch))

    def pods(self, selector):
        """The pods in Kiln's namespace that match SELECTOR and are not being deleted."""
        return [pod for pod in self.get("pods", "-n", NAMESPACE, "-l", selector)["items"]
                if "deletionTimestamp" not in pod["metadata"]]

    def agent(self):
        """The agent pod if there is exactly one and it is Ready, else None."""
        pods = self.pods(AGENTS)
        return pods[0] if len(pods) == 1 and is_ready(pods[0]) else None

    def scale(self, replicas):
        """Sets the number of replicas of both roles of the operator."""
        self.kubectl("scale", "deployment", "-n", NAMESPACE, *DEPLOYMENTS, f"--replicas={replicas}")

    def busy_pod(self, name, *arguments):
        """Creates a pod of the busy program. ARGUMENTS: the seconds of CPU time after which the program ends; none: never."""
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "shop"},
               "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [
                   {"name": "busy", "image": "kiln.local/busy:1", "imagePullPolicy": "Never",
                    "args": list(arguments),
                    # Without a CPU request a container has 2 CPU shares, against 1024 of an ordinary cgroup.
                    "resources": {"requests": {"cpu": "500m"}}}]}}
        self.apply(pod)

    def work_pods(self, namespaces, containers):
        """Creates each of NAMESPACES with a pod `work` of CONTAINERS; {(namespace, name of a container): its id} once all run."""
        found = {}
        for namespace in namespaces:
            self.kubectl("create", "namespace", namespace)
            self.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "work", "namespace": namespace}, "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [{"imagePullPolicy": "Never", **container} for container in containers]}})
        for namespace in namespaces:
            for status in wait_for("the pod", lambda n=namespace: (
                    s := self.get("pod", "-n", n, "work")["status"]["containerStatuses"]) and
                    all("running" in c["state"] for c in s) and s):
                found[namespace, status["name"]] = status["containerID"].split("://")[1]
        return found

    def report_every(self, seconds, **spec):
        """Sets the agent's window, and SPEC of the cluster's config; returns when an agent has that window."""
        self.patch({"spec": {"agent": {"reportIntervalSeconds": seconds}, **spec}})
        wait_for(f"the agent that reports every {seconds} s", lambda: f"window {seconds} s" in self.log() and self.agent())

    def pod_ids(self, name):
        """(pod uid, container id) of a busy pod."""
        pod = self.get("pod", "-n", "shop", name)
        return pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["containerID"].split("://")[1]

    # ---- the agent's output

    def log(self, *options):
        return self.kubectl("logs", "-n", NAMESPACE, "ds/kiln-agent", *options)

    def samples(self, container):
        """The samples of CONTAINER in the whole log of the current agent, up to the last complete sample."""
        text = self.log()
        end = text.rfind("--- End Sample ---")
        return [s for s in textdump.parse(dump_lines(text[:text.find("\n", end) + 1]))
                if s.resource.get("container.id") == container] if end >= 0 else []

    def count(self, container):
        return sum(s.value for s in self.samples(container))


def is_ready(pod):
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))


def cpu(container):
    """CPU time in seconds of the only process of a container."""
    (pid,) = host_pids(container)
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(") ", 1)[1].split()
    return sum(int(n) for n in fields[11:13]) / os.sysconf("SC_CLK_TCK")


def host_pids(container):
    """The pids, in the host's pid namespace, of the processes whose cgroup path contains the id CONTAINER."""
    pids = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if container in (entry / "cgroup").read_text():
                    pids.append(int(entry.name))
            except OSError:
                pass
    return pids
