# SPDX-License-Identifier: Apache-2.0
"""Configs that the API server accepts, and the operator's verdict on them, which depends on other objects.

A row is (title, objects, of, condition). OBJECTS are created in this order, a second apart when their age matters; OF is
"namespace/name" of the ProfilingConfig (or "cluster") whose status is checked; CONDITION is the expected (type, status,
reason, message); a message of None is not compared. test_table.py (crds) checks that the API server accepts each object
without an operator, test_parser.py which rows the parser rejects from one object alone. The conditions come from
policy_verdict() of operator/policy and are compared in program/test_table.py, with the whole operator.
"""

from conftest import thing
from table import CLUSTER, TENANT, groups, hz, otlp, select, to


def cluster(**spec):
    return thing(CLUSTER, "cluster", spec)


def tenant(name, **spec):
    return thing(TENANT, name, spec)


ROWS = [
    ("no cluster config",
     [tenant("a")],
     "default/a", ("Accepted", "False", "NoClusterConfig",
                   "there is no ClusterProfilingConfig cluster: nothing is profiled")),
    ("two defaults of a namespace: the older one counts",
     [cluster(), tenant("a", **hz(19)), tenant("b", **hz(29))],
     "default/b", ("Accepted", "False", "Conflict",
                   "spec.podSelector: absent, as in a, which is the namespace's default: of several the oldest "
                   "counts")),
    ("two selectors of the same priority are no conflict",
     [cluster(), tenant("a", **select(app="api"), **hz(19)), tenant("b", **select(app="api"), **hz(29))],
     "default/b", ("Accepted", "True", "Accepted", "accepted")),
    ("refers to a destination that nothing defines",
     [cluster(**to()), tenant("a", profile={"destinationRefs": ["mian"]})],
     "default/a", ("Accepted", "False", "DestinationNotFound",
                   "spec.profile.destinationRefs[0]: want the name of a destination of the cluster's or of "
                   'spec.destinations, got "mian"; did you mean main? Nothing is sent there; the rest of the config is '
                   'in effect')),
    ("what agents cannot do is told",
     [cluster(), tenant("a", profile={"tracers": {"native": "Disabled"}})],
     "default/a", ("Effective", "False", "PartlyIneffective",
                   "spec.profile.tracers.native: cannot be disabled, use mode: Disabled")),
    ("beyond the guard-rails in one field",
     [cluster(guardrails={"sampling": {"maxHz": 97}}), tenant("a", **hz(499))],
     "default/a", ("Accepted", "True", "Accepted", "accepted; the guard-rails changed sampling.hz")),
    ("a destination of its own that the cluster forbids",
     [cluster(**to()), tenant("a", destinations=[otlp(name="own")])],
     "default/a", ("Accepted", "True", "Accepted", "accepted; the guard-rails changed destinations")),
    ("a label key that is none: keys of maps are not checked by the API server",
     [cluster(), tenant("a", **select(**{"my team": "x"}))],
     "default/a", ("Accepted", "False", "Invalid", None)),
    ("the same for the agent's pods",
     [cluster(agent={"podLabels": {"my team": "x"}})],
     "cluster", ("Accepted", "False", "Invalid", None)),
    ("node groups at the limit",
     [cluster(nodeGroups=[{**g, "nodeSelector": {"matchLabels": {f"{g['name']}-{i}": "x" for i in range(4)}}}
                          for g in groups(4, 4, 4)["nodeGroups"]])],
     "cluster", ("Accepted", "True", "Accepted", "accepted")),
    ("a node group behind one that takes all its nodes",
     [cluster(**groups(4, 4))],
     "cluster", ("Accepted", "False", "Invalid",
                 "spec.nodeGroups[g1]: no node can be in it, the groups before it have them all (the last of these: "
                 "g0); put it before them")),
]

# The rows whose error the operator finds in one object alone.
ONE_OBJECT = {"a label key that is none: keys of maps are not checked by the API server",
              "the same for the agent's pods"}
