# SPDX-License-Identifier: Apache-2.0
"""Programs that live a few milliseconds are named, though most have ended before the agent reads /proc."""
import os
import shutil
import subprocess

import pytest

from parts import folded, profiling

SECONDS = 12
PROGRAMS = ("bash", "sh", "ls", "cat", "true", "env")
LOOP = """end=$((SECONDS+%d)); while [ $SECONDS -lt $end ]; do
ls / >/dev/null; sh -c 'cat /etc/hostname; true' >/dev/null 2>&1; x=$(env true); cat /etc/hostname | cat >/dev/null; done"""


def build_root(root):
    """Makes a root directory with PROGRAMS and their libraries, as in a container."""
    for name in ("bin", "etc", "dev", "lib", "lib64", "usr"):
        os.makedirs(root / name)
    os.symlink("../bin", root / "usr/bin")
    (root / "etc/hostname").write_text("kiln\n")
    (root / "dev/null").touch()
    for program in PROGRAMS:
        path = shutil.which(program)
        shutil.copy(os.path.realpath(path), root / "bin" / program)
        listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
        for library in (word for word in listed.split() if word.startswith("/")):
            os.makedirs(os.path.dirname(f"{root}{library}"), exist_ok=True)
            shutil.copy(os.path.realpath(library), f"{root}{library}")


@pytest.mark.parametrize("where", ["host", "chroot"])
def test_programs_that_live_a_few_milliseconds_are_named(agent, tmp_path, where):
    output, prefix = tmp_path / "x.folded", []
    if where == "chroot":
        build_root(tmp_path / "root")
        prefix = ["chroot", tmp_path / "root"]
    a = agent("--samples-per-second", 97, "--folded-file", output)
    profiling(a)
    subprocess.run([*prefix, "/bin/bash", "-c", LOOP % SECONDS], check=True, timeout=SECONDS + 60)
    assert a.stop() == 0, a.stderr()
    stacks = {stack: n for stack, n in folded(output).items() if stack.split(";")[0] in PROGRAMS}
    total = sum(stacks.values())
    lost = {stack: n for stack, n in stacks.items() if "[unknown]" in stack or "process not known" in stack}
    print(where, total, sum(lost.values()), lost)
    assert total > 30  # low, since two other tests may use the CPUs at the same time
    # With /proc as the only source, 8 % would be unknown.
    assert sum(lost.values()) <= total / 100
