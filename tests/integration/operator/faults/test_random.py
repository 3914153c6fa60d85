# SPDX-License-Identifier: Apache-2.0
"""Creates, updates, deletes and faults in random order, for KILN_FAULT_SECONDS (60); after each round the caches
equal a fresh list within 5 s."""
import collections
import os
import random
import threading
import time

from conftest import config_map, equal, pod, wait_until

SECONDS = float(os.environ.get("KILN_FAULT_SECONDS", 60))
SEED = int(os.environ.get("KILN_FAULT_SEED", time.time_ns() % 1000000))
ROUND = 8  # seconds of changes and faults before each comparison
NAMES = 60


class Changes(threading.Thread):
    """A thread that makes random changes. A request without an answer may or may not have been executed."""

    def __init__(self, admin, seed):
        super().__init__(daemon=True)
        self.admin, self.random = admin, random.Random(seed)
        self.go = threading.Event()
        self.idle = threading.Event()
        self.ended = False
        self.done = collections.Counter()
        self.namespaces = ["default"]
        self.nth = 0

    def run(self):
        while not self.ended:
            if not self.go.wait(0.1):
                self.idle.set()
                continue
            self.idle.clear()
            try:
                self.once()
            except OSError:
                self.done["unanswered"] += 1
                time.sleep(0.2)
            time.sleep(self.random.choice((0, 0.005, 0.02)))

    def pause(self):
        self.go.clear()
        self.idle.clear()
        assert self.idle.wait(60)

    def once(self):
        self.nth += 1
        if self.random.random() < 0.03:
            name = f"ns-{self.nth}"
            status, _ = self.admin("POST", "/api/v1/namespaces",
                                   {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
            if status == 201 and len(self.namespaces) < 6:
                self.namespaces.append(name)
            self.done[f"namespace {status}"] += 1
            return
        kind = self.random.choice(("pods", "configmaps"))
        ns, name = self.random.choice(self.namespaces), f"n-{self.random.randrange(NAMES)}"
        base = f"/api/v1/namespaces/{ns}/{kind}"
        what = self.random.choice(("create", "create", "update", "update", "delete"))
        size = self.random.choice((10, 1000, 20000))
        if what == "create":
            body = pod(name, ns, node=f"node-{self.nth % 5}") if kind == "pods" else config_map(name, ns, t="z" * size)
            status, _ = self.admin("POST", base, body)
        elif what == "update":
            change = {"metadata": {"labels": {"nth": str(self.nth)}, "annotations": {"size": "a" * size}}}
            status, _ = self.admin("PATCH", f"{base}/{name}", change, content="application/merge-patch+json")
        else:
            status, _ = self.admin("DELETE", f"{base}/{name}?gracePeriodSeconds=0")
        self.done[f"{what} {status}"] += 1


class Faults:
    def __init__(self, cluster, proxy, seed):
        self.cluster, self.proxy, self.random = cluster, proxy, random.Random(seed)
        self.done = collections.Counter()
        self.killed_at = 0

    def cut_one(self):
        self.proxy.cut(1)

    def cut_all(self):
        self.proxy.cut()

    def cut_at_random_bytes(self):
        self.proxy.allowance = (500, self.random.choice((5000, 50000, 500000)))
        self.proxy.cut()
        time.sleep(self.random.uniform(0.2, 2))
        self.proxy.allowance = None

    def away(self):
        self.proxy.refuse()
        time.sleep(self.random.uniform(0.1, 3))
        self.proxy.allow()

    def compact(self):
        self.cluster.compact()

    def freeze(self):
        self.cluster.freeze()
        time.sleep(self.random.uniform(0.1, 2))
        self.cluster.thaw()

    def forget(self):
        """Changes happen while the caches are cut off, and etcd and the server forget them: a watch gets 410 (Gone)."""
        self.proxy.refuse()
        time.sleep(0.5)
        self.cluster.compact()
        self.restart()
        self.proxy.allow()

    def restart(self):
        if time.monotonic() - self.killed_at < 20:
            return
        if self.random.random() < 0.7:
            self.cluster.kill_apiserver()
        self.cluster.restart_apiserver()
        self.killed_at = time.monotonic()

    def once(self):
        fault = self.random.choice((self.cut_one, self.cut_one, self.cut_all, self.cut_at_random_bytes, self.away,
                                    self.compact, self.freeze, self.restart, self.forget))
        fault()
        self.done[fault.__name__] += 1


def test_caches_equal_a_fresh_list_after_random_changes_and_faults(cluster, admin, proxy, caches):
    print(f"seed {SEED}")
    changes, faults = Changes(admin, SEED), Faults(cluster, proxy, SEED)
    changes.start()
    end, rounds, slowest = time.monotonic() + SECONDS, 0, 0
    while time.monotonic() < end:
        round_end = time.monotonic() + ROUND
        changes.go.set()
        while time.monotonic() < round_end:
            time.sleep(faults.random.uniform(0, 1))
            faults.once()
        changes.pause()
        proxy.allow()
        slowest = max(slowest, equal(admin, caches))
        rounds += 1
        # Nothing changes any more: the caches must stay equal.
        time.sleep(0.3)
        equal(admin, caches)
    changes.ended = True
    print(f"{rounds} rounds, slowest {slowest:.1f} s; {dict(changes.done)}; {dict(faults.done)}; "
          f"{proxy.cut_answers} answers cut; {[driver.stats() for driver in caches]}")
    assert sum(changes.done.values()) > 10 * SECONDS
    assert all(driver.count("undecodable") == driver.count("too_large") == 0 for driver in caches)
    wait_until("open watches", lambda: all(row["connected"] for driver in caches for row in driver.stats().values()))
