# SPDX-License-Identifier: Apache-2.0
"""Leader election over a real API server. The leader writes the time to its log every 2 ms; no two logs may overlap."""
import os
import signal
import time

import pytest

from conftest import READY, SLOW, Driver, wait_until

DURATION, DEADLINE, RETRY = 12, 8, 2.4  # seconds, as operator/lease/lease.h has them
# A candidate last saw the lease change up to one retry before the holder died; the rest is for the requests.
REPLACED = DURATION + RETRY + 2 * SLOW
HANDED_OVER = 3 * SLOW


class Election:
    """Candidates for one Lease, each with a log."""

    def __init__(self, cluster, admin, name):
        self.cluster, self.admin, self.name = cluster, admin, name
        self.candidates = {}

    def join(self, identity):
        log = os.path.join(self.cluster.dir, f"{self.name}-{identity}.log")
        self.candidates[identity] = Driver(self.cluster.kubeconfig, "lease", "default", self.name, identity, log)
        return self.candidates[identity]

    def writes(self, identity):
        """The times, in ns of the machine's monotonic clock, that the candidate has written as leader."""
        path = os.path.join(self.cluster.dir, f"{self.name}-{identity}.log")
        if not os.path.exists(path):
            return []
        with open(path, encoding="utf-8") as f:
            lines = [line.split() for line in f if line.endswith("\n")]
        assert all(line[0] == identity for line in lines)
        return [int(line[1]) for line in lines]

    def lease(self):
        path = f"/apis/coordination.k8s.io/v1/namespaces/default/leases/{self.name}"
        return self.admin.must("GET", path)["spec"]

    def never_two(self):
        """The candidates in the order in which they led. Fails when the writes of two candidates overlap."""
        spans = sorted((w[0], w[-1], identity) for identity in self.candidates if (w := self.writes(identity)))
        for (_, last, one), (first, _, other) in zip(spans, spans[1:]):
            assert last < first, f"{one} wrote until {last}, {other} from {first} on: {(last - first) / 1e6} ms too long"
        return [identity for _, _, identity in spans]

    def close(self):
        for driver in self.candidates.values():
            driver.kill()
            driver.log.close()


@pytest.fixture
def election(cluster, admin, request):
    e = Election(cluster, admin, request.node.name.replace("_", "-"))
    yield e
    e.close()


def lead(driver, timeout=READY):
    start = time.monotonic()
    assert driver.line(timeout) == "gained", driver.said()
    return time.monotonic() - start


def test_killed_leader_is_replaced_and_never_two_write(election):
    lead(election.join("a"))
    election.join("b")
    election.join("c")
    time.sleep(5)
    assert election.writes("b") == [] == election.writes("c")
    killed = time.monotonic_ns()
    election.candidates["a"].kill()
    wait_until("another leader", lambda: election.writes("b") or election.writes("c"), REPLACED)
    print("replaced after", (min(election.writes("b") + election.writes("c")) - killed) / 1e9)
    time.sleep(3)
    order = election.never_two()
    assert len(order) == 2 and order[0] == "a"
    spec = election.lease()
    assert spec["holderIdentity"] == order[1]
    assert spec["leaseTransitions"] == 1 and spec["leaseDurationSeconds"] == DURATION


def test_sigterm_hands_over_within_3_s(election):
    before = lead(election.join("a"))
    last = "a"
    for n, identity in enumerate("bcdef"):
        candidate = election.join(identity)
        time.sleep(1 + n * 0.3)  # each time in another phase of the candidate's retries
        election.candidates[last].process.send_signal(signal.SIGTERM)
        before = lead(candidate, HANDED_OVER)
        print("handed over after", before)
        assert before <= HANDED_OVER
        assert election.candidates[last].process.wait(READY) == 0, election.candidates[last].said()
        last = identity
    wait_until("f writes", lambda: election.writes("f"))
    assert election.never_two() == list("abcdef")
    assert election.lease()["leaseTransitions"] == 5
    # A leader that ends without a successor clears the holder and sets a duration of one second.
    election.candidates["f"].process.send_signal(signal.SIGTERM)
    assert election.candidates["f"].process.wait(READY) == 0
    spec = election.lease()
    assert spec.get("holderIdentity", "") == "" and spec["leaseDurationSeconds"] == 1
    assert spec["leaseTransitions"] == 5


def test_leader_that_stood_still_has_lost(election):
    lead(election.join("a"))
    election.join("b")
    time.sleep(1)
    os.kill(election.candidates["a"].process.pid, signal.SIGSTOP)
    lead(election.candidates["b"], REPLACED)
    time.sleep(1)
    os.kill(election.candidates["a"].process.pid, signal.SIGCONT)
    assert election.candidates["a"].line() == "lost"
    assert election.candidates["a"].process.wait(READY) == 3
    assert election.never_two() == ["a", "b"]


def test_leader_without_a_server_gives_up_in_time(cluster, election):
    leader = election.join("a")
    lead(leader)
    election.join("b")
    time.sleep(1)
    cluster.kill_apiserver()
    killed = time.monotonic_ns()
    try:
        assert leader.line((DEADLINE + 2) * SLOW) == "lost"
        assert leader.process.wait(READY) == 3
        assert (election.writes("a")[-1] - killed) / 1e9 <= DEADLINE + 0.1
        assert election.writes("b") == []
    finally:
        cluster.restart_apiserver()
    lead(election.candidates["b"], REPLACED)
    wait_until("b writes", lambda: election.writes("b"))
    assert election.never_two() == ["a", "b"]


def test_frozen_server_is_no_reason_for_two(cluster, election):
    """A frozen server keeps connections without answering; when it goes on, it executes the old requests late."""
    leader = election.join("a")
    lead(leader)
    election.join("b")
    time.sleep(1)
    cluster.freeze()
    try:
        assert leader.line((DEADLINE + 4) * SLOW) == "lost"
        time.sleep(3)
    finally:
        cluster.thaw()
    lead(election.candidates["b"], REPLACED + 10)
    election.join("c")
    time.sleep(4)
    assert election.never_two() == ["a", "b"]


def test_many_candidates_and_kills(election):
    """Leaders are killed or stopped one after another; at any time at most one candidate leads."""
    for identity in "abcdefgh":
        election.join(identity)
    led = []
    for n in range(4):
        now = wait_until("a leader", lambda: [i for i in election.candidates if i not in led and election.writes(i)],
                         REPLACED)
        assert len(now) == 1
        led += now
        time.sleep(1)
        if n % 2:
            election.candidates[now[0]].kill()
        else:
            election.candidates[now[0]].process.send_signal(signal.SIGTERM)
    assert election.never_two() == led
