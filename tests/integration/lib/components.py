# SPDX-License-Identifier: Apache-2.0
"""Third-party programs that tests run, built by `hack/`."""
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
    """The path of a current Collector, built if it is missing. Skips the calling test when it cannot be built."""
    return _made("build")


def receiver(version):
    """As collector(), for the OTLP receiver of the older Collector VERSION."""
    return _made("receiver", version)
