# SPDX-License-Identifier: Apache-2.0
"""The last of the tests of overlay "simple": how it goes away."""
import time

from cluster import AGENTS, NAMESPACE, OPERATORS, ROOT, is_ready, wait_for


def test_deleting_the_config_ends_profiling(cluster):
    since = time.monotonic()
    cluster.kubectl("delete", "cpc", "cluster")
    wait_for("no agent", lambda: not cluster.get("pods", "-n", NAMESPACE, "-l", AGENTS)["items"])
    cluster.took("config deleted: no agent", since)
    left = cluster.get("daemonset,configmap,service,serviceaccount,networkpolicy", "-n", NAMESPACE,
                       "-l", "app.kubernetes.io/managed-by=kiln-operator")["items"]
    assert left == [], [item["metadata"]["name"] for item in left]
    # The first config is made once: it does not come back.
    assert cluster.get("cpc")["items"] == []
    assert len([p for p in cluster.pods(OPERATORS) if is_ready(p)]) >= 1


def test_uninstall_leaves_nothing(cluster):
    since = time.monotonic()
    cluster.kubectl("delete", "-k", ROOT / "kustomize/overlays/simple")
    cluster.took("delete -k", since)
    assert cluster.get("namespaces", "--field-selector=metadata.name=kiln-system")["items"] == []
    left = [line for kind in ("crd", "clusterrole", "clusterrolebinding", "validatingadmissionpolicy", "flowschema")
            for line in cluster.kubectl("get", kind, "-o", "name").splitlines() if "kiln" in line]
    assert left == []
