# SPDX-License-Identifier: Apache-2.0
"""The whole operator sets the conditions of table_operator.py."""

import sys
import time

from conftest import ROOT, settle, wait_until

sys.path.insert(0, str(ROOT / "tests/integration/operator/crds"))
import table_operator  # noqa: E402


def clear(cluster):
    cluster.kubectl("delete", "pcfg", "--all", "-n", "default")
    cluster.kubectl("delete", "cpc", "--all")


def compare(cluster, row):
    """Applies the objects of ROW; None, or (title, the condition that was found instead)."""
    title, objects, of, (condition, *wanted) = row
    for i, made in enumerate(objects):
        if i and made["kind"] == objects[i - 1]["kind"]:
            time.sleep(1.1)  # creation times have a resolution of one second
        cluster.apply(made)
    kind, (namespace, _, name) = ("pcfg", of.partition("/")) if "/" in of else ("cpc", ("default", "", of))
    found = []

    def is_there():
        found[:] = [cluster.condition(kind, name, condition, namespace)]
        return found[0] and all(w in (None, f) for w, f in zip(wanted, found[0]))

    try:
        wait_until(title, is_there)
    except TimeoutError:
        return title, found[0]
    return None


def test_each_row_has_its_condition(cluster, operator):
    wrong = []
    try:
        for row in table_operator.ROWS:
            clear(cluster)
            wrong.append(compare(cluster, row))
    finally:
        clear(cluster)
        cluster.apply({"apiVersion": "profiling.kiln.dev/v1alpha1", "kind": "ClusterProfilingConfig",
                       "metadata": {"name": "cluster"}, "spec": {"destinations": [{"name": "logs", "text": {}}]}})
    assert [w for w in wrong if w] == []
    settle(cluster)
