# SPDX-License-Identifier: Apache-2.0
"""The operator's parser accepts and rejects the same objects as the API server: the schema is written twice, in crds/ and
in operator/policy."""

import json
import os
import re
import subprocess

import pytest

import table
import table_operator
from conftest import ROOT, thing

PARSE = os.environ.get("KILN_CRD_PARSE", str(ROOT / "build/dev/tests/crd_parse"))
NAMES = {table.CLUSTER: "cluster", table.TENANT: "config"}


def read(objects):
    """The error of the operator's parser for each object; empty when it accepts the object."""
    lines = "".join(json.dumps(o) + "\n" for o in objects)
    done = subprocess.run([PARSE], input=lines, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    said = done.stdout.split("\n")[:-1]
    assert len(said) == len(objects)
    return said


@pytest.fixture(scope="module")
def rows():
    rows = []
    for title, kind, spec, errors, *name in table.ROWS:
        if kind in NAMES:
            made = thing(kind, *name or [NAMES[kind]], spec)
            if spec is None:
                del made["spec"]
            rows.append((title, made, errors))
    return [(*entry, said) for entry, said in zip(rows, read([made for _, made, _ in rows]))]


def test_what_the_server_takes_is_read(rows):
    assert [(title, said) for title, _, errors, said in rows if not errors and said] == []


def test_what_the_server_refuses_is_refused(rows):
    assert [title for title, _, errors, said in rows if errors and not said and title not in SERVER_ONLY] == []


def test_the_same_field_is_named(rows):
    """The operator's error begins with the same field path as the API server's, or with a path below it."""
    def place(error):
        if "unknown field" in error:
            return error.split('unknown field "')[1][:-1]
        where = error.removeprefix("<nil>: Invalid value: ").split(": ")[0]  # a "<nil>" error is about the object's name
        return re.sub(r"\[([a-z]+)\]", r".\1", where)  # [key] of a map becomes .key

    for title, _, errors, said in rows:
        if errors and title not in SERVER_ONLY:
            ours = said.split(": ")[0]
            assert any(ours == p or ours.startswith((p + "[", p + ".")) for p in map(place, errors)), (title, said)


def test_of_other_objects_the_parser_knows_nothing():
    """Of the rows of table_operator.py the parser rejects exactly those that are wrong in one object alone."""
    for title, objects, of, (_, status, reason, _) in table_operator.ROWS:
        said = read(objects)
        assert any(said) == (title in table_operator.ONE_OBJECT), (title, said)


# Rows that only the API server rejects.
SERVER_ONLY = {"request above the limit", "memory in which no agent starts", "memory in bytes in which no agent starts"}
