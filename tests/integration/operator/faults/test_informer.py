# SPDX-License-Identifier: Apache-2.0
"""Caches of a real API server that is killed, compacted, restarted, cut off and overloaded: within 5 s after recovery each
cache equals a fresh list."""
import os
import time

import pytest

from conftest import READY, config_map, equal, pod, wait_until
from storm import Storm


@pytest.fixture(autouse=True)
def objects(admin, cluster):
    """Creates some objects before a test and deletes all objects after it."""
    for i in range(30):
        admin.must("POST", "/api/v1/namespaces/default/pods", pod(f"first-{i}"))
        admin.must("POST", "/api/v1/namespaces/default/configmaps", config_map(f"first-{i}"))
    yield
    for kind in ("pods", "configmaps"):
        status, _ = admin("DELETE", f"/api/v1/namespaces/default/{kind}?gracePeriodSeconds=0")
        assert status == 200


def change(admin, name, n=5):
    """Creates, updates and deletes N objects of each kind."""
    for i in range(n):
        admin.must("POST", "/api/v1/namespaces/default/pods", pod(f"{name}-{i}"))
        admin.must("POST", "/api/v1/namespaces/default/configmaps", config_map(f"{name}-{i}", text="x" * 3000))
        admin.must("PATCH", f"/api/v1/namespaces/default/pods/first-{i}", {"metadata": {"labels": {"touched": name}}},
                   content="application/merge-patch+json")
        admin.must("DELETE", f"/api/v1/namespaces/default/configmaps/first-{i}")
        admin.must("DELETE", f"/api/v1/namespaces/default/pods/first-{29 - i}?gracePeriodSeconds=0")


def test_changes_arrive(admin, caches):
    change(admin, "new")
    equal(admin, caches)
    first = {key: row["lists"] for key, row in caches[0].stats().items()}
    assert set(first.values()) == {1}
    # caches[1] lists in pages, which must cause no error.
    assert caches[1].count("errors") == 0


def test_server_without_watch_list(cluster, admin, start):
    cluster.restart_apiserver("--feature-gates=WatchList=false")
    try:
        driver = start("informers", "pods", "configmaps", "namespaces")
        equal(admin, [driver], READY)
        assert driver.count("lists") == 6  # for each kind a streaming list that is rejected, and a paged list
        change(admin, "old")
        equal(admin, [driver])
    finally:
        cluster.restart_apiserver("--feature-gates=WatchList=true")


def test_server_killed_and_restarted(cluster, admin, caches):
    for n in range(2):
        cluster.kill_apiserver()
        time.sleep(1)
        cluster.restart_apiserver()
        print("equal after", equal(admin, caches))
        change(admin, f"killed-{n}", 2)
        equal(admin, caches)
        for i in range(2):  # create the objects again that change() deleted
            admin.must("POST", "/api/v1/namespaces/default/configmaps", config_map(f"first-{i}"))
            admin.must("POST", "/api/v1/namespaces/default/pods", pod(f"first-{29 - i}"))
        equal(admin, caches)


def test_etcd_compacted_under_the_watch(cluster, admin, proxy, caches):
    before = [driver.count("expired") for driver in caches]
    proxy.refuse()
    change(admin, "unseen")
    cluster.compact()
    cluster.restart_apiserver()  # so that the server's watch cache has lost the changes, too
    admin.must("POST", "/api/v1/namespaces/default/pods", pod("unseen-too"))
    proxy.allow()
    print("equal after", equal(admin, caches))
    for driver, count in zip(caches, before):
        assert driver.count("expired") > count, driver.stats()
    admin.must("POST", "/api/v1/namespaces/default/pods", pod("after"))
    equal(admin, caches)


def service_account(admin, name):
    admin.must("POST", "/api/v1/namespaces/default/serviceaccounts",
               {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}})


def write(path, text):
    """Replaces the file atomically, as the kubelet does."""
    with open(path + ".new", "w", encoding="utf-8") as f:
        f.write(text)
    os.rename(path + ".new", path)


def test_token_rotated(cluster, admin, proxy, start):
    service_account(admin, "reader")
    admin.must("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
               {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                "metadata": {"name": "reader"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
                "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": "default"}]})
    token = os.path.join(cluster.dir, "reader.token")
    write(token, cluster.token("default", "reader"))
    kubeconfig = os.path.join(cluster.dir, "reader.kubeconfig")
    write(kubeconfig, f"""apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "{cluster.url}", certificate-authority: "{cluster.ca}"}}}}]
users: [{{name: u, user: {{tokenFile: "{token}"}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
current-context: x
""")
    driver = start("informers", "pods", "configmaps", "namespaces", kubeconfig=kubeconfig)
    equal(admin, [driver], READY)
    # A new ServiceAccount of the same name has another UID, so tokens of the old one are invalid.
    admin.must("DELETE", "/api/v1/namespaces/default/serviceaccounts/reader")
    service_account(admin, "reader")
    change(admin, "rotated")
    errors = driver.count("errors")

    def refused():
        proxy.cut()
        return driver.count("errors") > errors + 2 and "401" in driver.said()

    wait_until("the old token to be refused", refused)
    write(token, cluster.token("default", "reader"))
    print("equal after", equal(admin, [driver]))


def test_ca_rotated(cluster, admin, caches):
    cluster.rotate_ca()
    admin.http = None
    print("equal after", equal(admin, caches))
    change(admin, "rotated")
    equal(admin, caches)


def test_connections_reset_in_the_middle_of_objects(admin, proxy, caches):
    """Connections break after a random number of bytes of the answers, within TLS records and within objects."""
    for n in range(4):
        proxy.allowance = (3000, 30000)
        proxy.cut()
        for i in range(30):
            admin.must("POST", "/api/v1/namespaces/default/configmaps",
                       config_map(f"cut-{n}-{i}", text="y" * (100 * i)))
            if i % 3 == 0:
                proxy.cut(1)
            time.sleep(0.05)
        proxy.allow()
        proxy.cut()
        print("equal after", equal(admin, caches))
    assert proxy.cut_answers > 0 and proxy.cuts > 20, (proxy.cut_answers, proxy.cuts)
    assert all(driver.count("undecodable") == 0 for driver in caches)


def test_storm_of_429(cluster, admin, proxy, caches):
    proxy.refuse()
    with Storm(cluster, proxy.port, 429, ("Retry-After", "1")) as storm:
        change(admin, "storm")
        errors = [driver.count("errors") for driver in caches]
        wait_until("refusals", lambda: all(driver.count("errors") >= n + 15 for driver, n in zip(caches, errors)))
        # The clients obey "Retry-After: 1": at most one request a second for each watch.
        start, before = time.monotonic(), storm.seen
        time.sleep(4)
        watches = sum(len(driver.stats()) for driver in caches)
        assert storm.seen - before <= watches * (time.monotonic() - start + 2)
    assert storm.seen > 20
    proxy.allow()
    print("equal after", equal(admin, caches))


@pytest.mark.skipif(not os.environ.get("KILN_CLOCK_SHIFT"), reason="the clock cannot be moved in this build")
def test_wall_clock_jumps(cluster, admin, proxy, start):
    """The wall clock jumps ahead and back by days; connections are made anew after each jump."""
    shift = os.path.join(cluster.dir, "shift")
    write(shift, "0")
    env = {"LD_PRELOAD": os.environ["KILN_CLOCK_SHIFT"], "KILN_CLOCK_SHIFT_FILE": shift}
    driver = start("informers", "pods", "configmaps", "namespaces", **env)
    equal(admin, [driver], READY)
    for n, seconds in enumerate((86400, 0, 7 * 86400, 3600, 0)):
        write(shift, str(seconds))
        admin.must("POST", "/api/v1/namespaces/default/pods", pod(f"jump-{n}"))
        equal(admin, [driver])
        proxy.cut()
        admin.must("POST", "/api/v1/namespaces/default/configmaps", config_map(f"jump-{n}"))
        print("equal after", equal(admin, [driver]))
    text = driver.said()
    assert driver.count("lists") == 3, text  # one list for each kind: all else was done by resumed watches
