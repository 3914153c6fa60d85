# SPDX-License-Identifier: Apache-2.0
import subprocess

import pytest
from test_first_hour import parts


@pytest.fixture(scope="session")
def collector_binary():
    found = subprocess.run([parts.ROOT / "hack/collector", "build"], capture_output=True, text=True, check=False)
    if found.returncode:
        pytest.skip("no Collector: " + found.stderr.strip()[-300:])
    return found.stdout.strip()
