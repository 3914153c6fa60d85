# SPDX-License-Identifier: Apache-2.0
"""Of two replicas only the leader writes."""

import signal
import time

import pytest

from conftest import NAMESPACE, WAIT, wait_until


@pytest.fixture(scope="module")
def accounts(cluster, tmp_path_factory):
    """Two accounts with the operator's permissions, so that the audit log tells the replicas apart."""
    directory = tmp_path_factory.mktemp("accounts")
    subjects, paths = [], []
    for name in ("kiln-operator", "operator-b"):
        if name != "kiln-operator":
            cluster.kubectl("create", "serviceaccount", name, "-n", NAMESPACE)
        subjects.append({"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE})
        paths.append((f"system:serviceaccount:{NAMESPACE}:{name}", cluster.account(name, directory)))
    cluster.patch("rolebinding", "kiln-operator", {"subjects": subjects})
    cluster.patch("clusterrolebinding", "kiln-operator", {"subjects": subjects})
    return paths


def shake(cluster, i):
    """Damages the agents' ConfigMap, which only a leader repairs."""
    cluster.patch("configmap", "kiln-agent", {"data": {"agent.yaml": f"# {i}"}})


def is_right(cluster):
    return "receivers" in cluster.object("configmap", "kiln-agent")["data"]["agent.yaml"]


def test_a_killed_leader_is_replaced_and_never_two_write(cluster, start, accounts):
    (user_a, a_config), (user_b, b_config) = accounts
    a = start("operator-a", kubeconfig=a_config)
    wait_until("lead of a", lambda: a.ready() and a.leads())
    b = start("operator-b", kubeconfig=b_config)
    wait_until("readiness of b", b.ready)
    wait_until("an agent", lambda: cluster.object("configmap", "kiln-agent"))
    time.sleep(1)
    assert not b.leads()
    since = cluster.mark()
    a.process.send_signal(signal.SIGKILL)
    a.process.wait()
    killed = time.monotonic()
    shake(cluster, 1)
    wait_until("lead of b", b.leads)
    print(f"killed leader replaced after {time.monotonic() - killed:.1f} s")
    wait_until("the config put right", lambda: is_right(cluster))
    users = [w[0] for w in cluster.writes(since) if w[0] in (user_a, user_b)]
    assert users and set(users) == {user_b}


def test_a_leader_that_is_asked_to_go_hands_over(cluster, start, accounts):
    (user_a, a_config), (user_b, b_config) = accounts
    a = start("operator-a", kubeconfig=a_config)
    wait_until("lead of a", lambda: a.ready() and a.leads())
    b = start("operator-b", kubeconfig=b_config)
    wait_until("readiness of b", b.ready)
    since = cluster.mark()
    asked = time.monotonic()
    assert a.stop(signal.SIGTERM) == 0
    shake(cluster, 2)
    wait_until("lead of b", b.leads)
    print(f"handed over after {time.monotonic() - asked:.1f} s")
    wait_until("the config put right", lambda: is_right(cluster))
    order = [w[0] for w in cluster.writes(since) if w[0] in (user_a, user_b)]
    assert order == sorted(order, key=[user_a, user_b].index), "a wrote after b"


def test_a_leader_that_cannot_renew_stops_writing_and_leaves(cluster, start, accounts):
    a = start("operator-a", kubeconfig=accounts[0][1])
    wait_until("lead of a", lambda: a.ready() and a.leads())
    cluster.freeze()
    try:
        assert a.process.wait(WAIT) == 1
    finally:
        cluster.thaw()
    assert "lost the lease" in a.log
