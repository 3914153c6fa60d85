# SPDX-License-Identifier: Apache-2.0
"""One operator and a sequence of faults: after each fault a change of the config takes effect."""

import pathlib
import time

from conftest import NAMESPACE, ROOT, settle, wait_until


def effective(cluster, operator, what, hz):
    """Changes the rate; waits until the agents' configuration has it and the status accepts it."""
    started = time.monotonic()
    cluster.patch("cpc", "cluster", {"spec": {"defaults": {"sampling": {"hz": hz}}}})

    def done():
        assert operator.process.poll() is None, operator.log[-3000:]
        agent = cluster.object("configmap", "kiln-agent")
        return (f"samples_per_second: {hz}" in agent["data"]["agent.yaml"]
                and (cluster.condition("cpc", "cluster", "Accepted") or [""])[0] == "True")

    wait_until(f"the new rate after {what}", done)
    print(f"{what}: a change is in effect after {time.monotonic() - started:.2f} s")


def test_faults_pass(cluster, account, start):
    token = pathlib.Path(account).with_name("kiln-operator.token")
    op = start("operator-0", "--leader-elect=false")
    wait_until("readiness", op.ready)
    wait_until("a first config", lambda: cluster.object("cpc", "cluster"))
    cluster.reset({"destinations": [{"name": "logs", "text": {}}]})
    settle(cluster)
    effective(cluster, op, "nothing", 121)

    cluster.kill_apiserver()
    time.sleep(5)
    cluster.restart_apiserver()
    effective(cluster, op, "API server killed", 122)

    expired = op.metric("kiln_informer_expired_total")
    cluster.compact()
    cluster.restart_apiserver()
    effective(cluster, op, "compacted, restarted", 123)
    assert op.metric("kiln_informer_expired_total") > expired, "nobody was told 410"

    # A new ServiceAccount of the same name has another UID, so the old token is invalid.
    cluster.kubectl("delete", "serviceaccount", "kiln-operator", "-n", NAMESPACE)
    cluster.kubectl("apply", "-k", str(ROOT / "kustomize/overlays/default"))
    old = token.read_text(encoding="utf-8")
    token.write_text(cluster.token(NAMESPACE, "kiln-operator"), encoding="utf-8")
    assert old != token.read_text(encoding="utf-8")
    effective(cluster, op, "token revoked", 124)

    cluster.rotate_ca()
    effective(cluster, op, "CA rotated", 125)

    assert op.ready()
    # The log of all faults is short.
    assert op.log.count("\n") < 200, op.log[-5000:]
