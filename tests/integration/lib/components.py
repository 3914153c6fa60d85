# SPDX-License-Identifier: Apache-2.0
"""Programs of others that tests run, where `hack/` builds them."""
import pathlib
import subprocess

import pytest

TOOL = pathlib.Path(__file__).resolve().parents[3] / "hack/collector"


def _made(*arguments):
    found = subprocess.run([TOOL, *arguments], capture_output=True, text=True, check=False)
    if found.returncode:
        pytest.skip("no Collector: " + found.stderr.strip()[-300:])
    return found.stdout.strip()


def collector():
    """The Collector's path. Builds it when it is missing; when it cannot be had, the test that asks is skipped."""
    return _made("build")


def receiver(version):
    """The same of an older version's OTLP receiver."""
    return _made("receiver", version)
