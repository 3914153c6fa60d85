# SPDX-License-Identifier: Apache-2.0
"""Fixtures: one API server for all tests, and `kubectl apply -k kustomize/overlays/default`."""

import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[4]
sys.path.insert(0, str(ROOT / "tests/integration/lib"))
import envtest  # noqa: E402

DATA = ROOT / "tests/data/render"
OVERLAYS = ROOT / "kustomize/overlays"
DUMP = os.environ.get("RENDER_DUMP", str(ROOT / "build/dev/tests/render_dump"))


@pytest.fixture(scope="session")
def cluster():
    try:
        envtest.build()
    except RuntimeError as error:
        pytest.skip(str(error))
    with envtest.EnvTest(audit=True) as running:
        yield running


@pytest.fixture(scope="session")
def installed(cluster):
    """The finished process of the first apply."""
    return cluster.kubectl("apply", "-k", OVERLAYS / "default", check=False)
