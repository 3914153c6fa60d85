# SPDX-License-Identifier: Apache-2.0
"""Configs that the API server takes and the operator does not: what depends on other objects.

A row is (title, objects, of, condition). OBJECTS are created in this order, a second apart when their age
decides; OF is "namespace/name" of the ProfilingConfig (or "cluster") whose status is looked at; CONDITION is
(type, status, reason, message) of the condition that it then has. test_table.py proves that the API server
takes each object, without an operator. Reasons and messages are the operator's (operator/policy, operator/render):
a message of None is not looked at.
"""

from conftest import thing
from table import CLUSTER, TENANT, groups, hz, otlp, select, to


def cluster(**spec):
    return thing(CLUSTER, "cluster", spec)


def tenant(name, **spec):
    return thing(TENANT, name, spec)


ROWS = [
    ("two defaults of a namespace: the older one counts",
     [cluster(), tenant("a", **hz(19)), tenant("b", **hz(29))],
     "default/b", ("Accepted", "False", "Conflict", None)),
    ("two selectors of the same priority are no conflict",
     [cluster(), tenant("a", **select(app="api"), **hz(19)), tenant("b", **select(app="api"), **hz(29))],
     "default/b", ("Accepted", "True", "Accepted", None)),
    ("refers to a destination that nothing defines",
     [cluster(**to()), tenant("a", profile={"destinationRefs": ["mian"]})],
     "default/a", ("Accepted", "False", "Invalid", None)),
    ("refers to a destination of its own that the cluster forbids",
     [cluster(**to()), tenant("a", destinations=[otlp(name="own")], profile={"destinationRefs": ["own"]})],
     "default/a", ("Accepted", "False", "Invalid", None)),
    ("a label key that is none: keys of maps are not checked by the API server",
     [cluster(), tenant("a", **select(**{"my team": "x"}))],
     "default/a", ("Accepted", "False", "Invalid", None)),
    ("the same for the agent's pods",
     [cluster(agent={"podLabels": {"my team": "x"}})],
     "cluster", ("Accepted", "False", "Invalid", None)),
    ("node groups at the limit",
     [cluster(**groups(4, 4, 4))],
     "cluster", ("Accepted", "True", "Accepted", None)),
]

# What the operator sees in one object alone.
ONE_OBJECT = {"a label key that is none: keys of maps are not checked by the API server",
              "the same for the agent's pods"}
