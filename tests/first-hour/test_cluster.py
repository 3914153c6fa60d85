# SPDX-License-Identifier: Apache-2.0
"""A new user's first hour with a cluster: one real node (hack/node) without Kiln, and the commands of the README and of
docs/helm.md, word by word: build, make the images, import them, install, look, uninstall. First with kubectl, then with
Helm on the same node. Each time a pod of the user's computes, and must appear in the agents' logs under its own name,
with about the CPU time that it measured itself. tests/e2e tests such an installation in depth."""
import json
import pathlib
import re
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
import cluster as kiln  # noqa: E402
from cluster import ROOT, wait_for  # noqa: E402

HZ = 97  # a high rate, so that a few seconds give enough samples; the default is 20
SECONDS = 12  # the program's running time
SHOP = "kiln.local/shop:1"
lacks = kiln.missing()
pytestmark = pytest.mark.skipif(lacks is not None, reason=f"no node: {lacks}")


def blocks(document, heading):
    """The code blocks (fenced, or indented by four spaces) below HEADING of a document, each as a list of its lines."""
    text = (ROOT / document).read_text(encoding="utf-8")
    section = re.split(r"^## ", text.split(f"\n## {heading}\n", 1)[1], maxsplit=1, flags=re.M)[0]
    found = re.findall(r"^```\w*\n(.*?)^```$|((?:^    [^\n]*\n)+)", section, flags=re.M | re.S)
    return [[line.strip() for line in (fenced or indented).splitlines()] for fenced, indented in found]


class Node(kiln.Cluster):
    def shell(self, line, **options):
        """Runs a command line of a document on the node, in the root of this tree."""
        return kiln.run(kiln.SCRIPT, "run", self.node_dir, "--", "bash", "-c", f"cd {ROOT} && {line}", timeout=1800, **options)

    def shop(self, name):
        """Runs the user's program in a pod until it ends: ({function: seconds}, measured by the program, container id)."""
        self.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "shop"}, "spec": {
            "restartPolicy": "Never", "containers": [
                {"name": "shop", "image": SHOP, "imagePullPolicy": "Never", "args": [str(SECONDS)],
                 "resources": {"requests": {"cpu": "500m"}}}]}})
        wait_for("the program's end", lambda: self.get("pod", "-n", "shop", name)["status"]["phase"] == "Succeeded")
        return json.loads(self.kubectl("logs", "-n", "shop", name)), self.pod_ids(name)[1]

    def set_up(self, window):
        """Changes the config as the README does with `kubectl edit cpc cluster`: HZ samples a second, windows of WINDOW s."""
        self.patch({"spec": {"defaults": {"sampling": {"hz": HZ}}, "agent": {"reportIntervalSeconds": window}}})
        wait_for("the config is in effect", lambda: self.agent() and f", window {window} s" in self.log() and re.search(
            rf"^cluster\s+{HZ}\s.*\sTrue\s+True\s+\S+$", self.kubectl("get", "cpc"), re.M))

    def is_profiled(self, name):
        """Runs the pod NAME; all of its samples must be in the agents' logs after a window, with the name of this pod."""
        truth, container = self.shop(name)
        total = sum(truth.values())

        def of_the_program():
            """The samples of the program itself, without those of runc, which starts it."""
            return [s for s in self.samples(container) if s.attributes["process.executable.name"] == "shop"]

        def is_whole():
            count = sum(s.value for s in of_the_program())
            if count < 0.85 * total * HZ:
                raise RuntimeError(f"{count} of {total * HZ:.0f} samples; {len(self.log())} bytes of log, which ends: "
                                   f"{self.log('--tail=5')[-500:]}")
            return True

        wait_for("its profile in the agents' logs", is_whole, interval=1)
        samples = of_the_program()
        for s in samples:
            assert (s.resource["k8s.namespace.name"], s.resource["k8s.pod.name"]) == ("shop", name)
        seen = {f: sum(s.value for s in samples if f in s.user) / HZ for f in truth}
        # The program shares two CPUs with a whole cluster, so how many samples hit it is random.
        assert sum(s.value for s in samples) / HZ == pytest.approx(total, rel=0.15), (seen, truth)
        for function, took in truth.items():
            assert seen[function] == pytest.approx(took, abs=0.1 * total), (seen, truth)


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """The node with the user's program, and Kiln's images made and imported as the README says."""
    made = tmp_path_factory.mktemp("images")
    node = Node()
    try:
        node.up()
        for line in blocks("README.md", "In a Kubernetes cluster")[0]:
            assert re.match(r"\./hack/|ctr ", line), line
            node.shell(line.replace("/tmp/kiln-images", str(made)))
        subprocess.run(["cc", "-O2", "-o", made / "shop", HERE / "shop.c"], check=True)
        kiln.run(ROOT / "hack/node.d/image.py", "--name", SHOP, "--output", made / "shop.tar", "--entrypoint",
                 "/usr/local/bin/shop", "--user", "65532:65532", f"{made}/shop=/usr/local/bin/shop")
        kiln.run(kiln.SCRIPT, "import", node.node_dir, made / "shop.tar")
        node.kubectl("create", "namespace", "shop")
        yield node
    finally:
        node.down()


def left(node):
    """The names of the cluster-wide objects of Kiln that exist."""
    kinds = "namespaces,crds,clusterroles,clusterrolebindings,validatingadmissionpolicies,flowschemas"
    names = node.kubectl("get", kinds, "-o", "name").splitlines()
    return [n for n in names if re.search(r"kiln|profiling", n)]


def test_kubectl(node):
    """Installs the overlay "default" and looks at the object that the README names."""
    apply, look = blocks("README.md", "In a Kubernetes cluster")[1]
    assert re.fullmatch(r"kubectl apply -k kustomize/overlays/default", apply), apply
    node.shell(apply)
    wait_for("the agent", node.agent)
    wait_for("the config is in effect", lambda: re.search(r"^cluster\s.*\sTrue\s+True\s+\S+$", node.shell(look), re.M))
    node.set_up(60)  # the default of this overlay
    node.is_profiled("by-kubectl")
    uninstall, = [line for block in blocks("docs/operator.md", "Uninstall") for line in block if " delete -k " in line]
    node.shell(uninstall)
    wait_for("nothing of it is left", lambda: not left(node))


def test_helm(node, tmp_path):
    """Installs, upgrades, rolls back and uninstalls the chart with the commands of docs/helm.md."""
    helm = kiln.run(ROOT / "hack/helm", "build", timeout=1800).strip()
    (tmp_path / "helm").symlink_to(helm)

    def shell(line):
        env = "".join(f"HELM_{kind}_HOME={tmp_path} " for kind in ("CACHE", "CONFIG", "DATA"))
        return node.shell(f"export {env} PATH={tmp_path}:$PATH; {line}")

    install, = blocks("docs/helm.md", "Install")
    (upgrade, rollback, _), uninstall = blocks("docs/helm.md", "Upgrade, roll back, uninstall")
    for line in install:
        shell(line)
    wait_for("the agent", node.agent)
    node.set_up(5)  # another window restarts the agent
    node.is_profiled("by-helm")
    for line in (upgrade, rollback, *uninstall):
        shell(line)
    node.kubectl("delete", "namespace", kiln.NAMESPACE)
    wait_for("nothing of it is left", lambda: not left(node))
