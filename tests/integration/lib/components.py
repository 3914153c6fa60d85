# SPDX-License-Identifier: Apache-2.0
"""Programs of others that tests run, where `hack/` builds them."""
import pathlib
import subprocess

import pytest

TOOL = pathlib.Path(__file__).resolve().parents[3] / "hack/collector"


def collector():
    """The Collector's path. Builds it when it is missing; when it cannot be had, the test that asks is skipped."""
    found = subprocess.run([TOOL, "build"], capture_output=True, text=True, check=False)
    if found.returncode:
        pytest.skip("no Collector: " + found.stderr.strip()[-300:])
    return found.stdout.strip()
