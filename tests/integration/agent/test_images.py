# SPDX-License-Identifier: Apache-2.0
"""Many containers of one image: each has its own overlay mount of the same lower directory, in its own mount namespace, so
that the files of no two containers have the same device. The tables of 20 libraries are built once; and a crafted library
with the build id of another does not change other containers' stacks."""
import re
import subprocess
import time

import pytest

from parts import LONG, SANITIZER, agent as kiln, free_port, wait_until

LIBRARIES = 20
MOUNTS = 500 if LONG else 50
SECONDS = 120 if LONG else 20
CONFIG = """
receivers:
  profiling: {samples_per_second: 499, reporter_interval: 2s}
exporters:
  debug: {ignore_profiles_without_container_id: false}
extensions:
  health_check: {endpoint: "127.0.0.1:%d"}
service:
  extensions: [health_check]
  pipelines:
    profiles: {receivers: [profiling], exporters: [debug]}
"""
# The large frame is easy to find in .eh_frame, and fits into the copy of the stack that comes with a first sample.
LIBRARY = """
static __attribute__((noinline)) int inner%d(volatile char *a, int n)
{
	volatile char big[9000];
	int sum = 0;
	for (int i = 0; i < 300000; i++) { big[(i * 7) %% 9000] = (char)i; sum += big[i %% 9000]; }
	a[0] = (char)sum;
	return sum + n;
}
__attribute__((noinline)) int spin%d(int n) { volatile char a[8]; return inner%d(a, n) ^ a[0]; }
"""
PAD = 8192  # bytes; more than the head and the tail from which the semantic conventions identify a file
LARGE = 5 << 20  # bytes; the content of so large a file is read only when a second copy of it is seen
CRAFTED = "libk0.so", "libk1.so"  # the second one is large


def build(low):
    """Builds the image: the program wl-overlay with its libraries beside it."""
    low.mkdir()
    for i in range(LIBRARIES):
        source = low / f"k{i}.c"
        source.write_text(LIBRARY % (i, i, i))
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", f"-Wl,--build-id=0x{i + 1:040x},-soname,libk{i}.so",
                        "-o", low / f"libk{i}.so", source], check=True)
        with open(low / f"libk{i}.so", "ab") as f:
            f.write(bytes(LARGE if f"libk{i}.so" == CRAFTED[1] else PAD))
    numbers = range(LIBRARIES)
    main = low / "main.c"
    main.write_text("".join(f"int spin{i}(int n);\n" for i in numbers) +
                    "int main(void)\n{\n\tint n = 0;\n\tfor (;;) {\n" +
                    "".join(f"\t\tn += spin{i}(n);\n" for i in numbers) + "\t}\n}\n")
    subprocess.run(["cc", "-O1", "-o", low / "wl-overlay", main, *(low / f"libk{i}.so" for i in numbers),
                    f"-Wl,-rpath,{low.parent}/merged"], check=True)


def craft(source, target):
    """Copies SOURCE with a wrong CFA in .eh_frame, but with the same build id, size, head and tail."""
    data = bytearray(source.read_bytes())
    listing = subprocess.run(["readelf", "-SW", source], capture_output=True, text=True, check=True).stdout
    offset, size = (int(n, 16) for n in
                    re.search(r"\.eh_frame +PROGBITS +\w+ (\w+) (\w+)", listing).groups())
    changed = 0
    for at in range(offset, offset + size - 4):
        # DW_CFA_def_cfa_offset with a ULEB128 of about 9,000, as only the large frame has.
        if data[at] == 0x0e and data[at + 1] & 0x80 and data[at + 2] in range(0x44, 0x48):
            data[at + 1] ^= 0x10
            changed += 1
    assert changed and offset >= 4096 and offset + size <= len(data) - 4096
    target.write_bytes(data)


class Containers:
    def __init__(self, directory):
        self.directory, self.processes = directory, []
        (directory / "merged").mkdir()
        (directory / "none").mkdir()

    def start(self, *layers):
        lower = ":".join(str(layer) for layer in (*layers, self.directory / "none"))
        p = subprocess.Popen(["unshare", "--mount", "--propagation", "private", "sh", "-c",
                              f"mount -t overlay -o ro,lowerdir={lower} overlay {self.directory}/merged && "
                              f"exec {self.directory}/merged/wl-overlay"],
                             stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.processes.append(p)
        return p

    def is_running(self, p):
        assert p.poll() is None, p.stderr.read()
        with open(f"/proc/{p.pid}/comm", encoding="ascii") as f:
            return f.read() == "wl-overlay\n"

    def close(self):
        for p in self.processes:
            p.kill()
        for p in self.processes:
            p.wait()
            p.stderr.close()


@pytest.fixture
def containers(tmp_path):
    build(tmp_path / "low")
    if subprocess.run(["unshare", "--mount", "sh", "-c", "mkdir -p {0}/try {0}/x && mount -t overlay -o ro,lowerdir="
                       "{0}/low:{0}/x overlay {0}/try".format(tmp_path)], check=False).returncode:
        pytest.skip("no overlayfs here")
    c = Containers(tmp_path)
    yield c
    c.close()


def identity(pid):
    with open(f"/proc/{pid}/maps", encoding="ascii") as f:
        return re.search(r" (\w+:\w+ \d+) +\S*/libk0\.so$", f.read(), re.M).group(1)


@pytest.mark.skipif(bool(SANITIZER), reason="counts, that no sanitizer changes, of a long run")
def test_containers_of_one_image_share_what_is_made_of_its_files(agent, containers, tmp_path):
    crafted = tmp_path / "crafted"
    crafted.mkdir()
    for name in CRAFTED:
        craft(tmp_path / "low" / name, crafted / name)
    port = free_port()
    a = agent("--process-filter", "^wl-overlay$", config=CONFIG % port)
    a.wait_ready(url=f"http://127.0.0.1:{port}/readyz")
    url = f"http://127.0.0.1:{port}/metrics"
    # The container with the crafted libraries starts first: its tables exist when the others start.
    evil = containers.start(crafted, tmp_path / "low")
    wait_until("its tables are made", lambda: kiln.metrics(url)["kiln_unwind_tables_total"] > LIBRARIES)
    others = [containers.start(tmp_path / "low") for _ in range(MOUNTS)]
    for p in others:
        wait_until("the container runs", lambda: containers.is_running(p))
    assert len({identity(p.pid) for p in others}) == MOUNTS, "these files are the same by device and inode"
    time.sleep(SECONDS)
    m = kiln.metrics(url)
    tables, symbols = m["kiln_unwind_tables_total"], m["kiln_symbol_tables_built_total"]
    identified = m['kiln_images_identified_total{result="ok"}']
    print(f"{MOUNTS} mounts: {identified:.0f} files identified, {tables:.0f} unwind tables, {symbols:.0f} symbol tables, "
          f"{m['kiln_samples_total']:.0f} samples")
    for p in containers.processes:
        p.kill()
    assert a.stop() == 0, a.stderr()
    # Tables of the libraries, the crafted ones, the program, libc, the dynamic linker and the vDSO. The rest of the margin
    # is for the runtimes of this machine, which are read before their first sample.
    assert LIBRARIES < tables <= LIBRARIES + 10 and symbols <= LIBRARIES + 10
    assert identified > MOUNTS * LIBRARIES / 2
    assert m['kiln_images_identified_total{result="not_needed"}'] < 10, "more than the first one of a large file"
    samples = [s for s in a.samples() if s.exe]
    for function in "inner0", "inner1":
        stacks = {True: [], False: []}
        for s in samples:
            if function in s.user:
                stacks[s.pid == evil.pid].append("main" in s.user)
                assert s.pid == evil.pid or "main" in s.user or s.user[-1].startswith("[incomplete"), s.user
        # The crafted rule holds inside the large frame, not in the prologue and epilogue: there a few stacks are complete.
        assert sum(stacks[True]) < 0.1 * len(stacks[True]), "the crafted unwind information does nothing"
        # With the crafted tables no stack of the others would be complete. When so many start at once, not every first sample
        # has a copy of its stack (docs/architecture.md, "Overload"); such a stack ends in "[incomplete", checked above.
        assert len(stacks[False]) > MOUNTS / 2, function
        assert stacks[False].count(True) > 0.8 * len(stacks[False]), (function, stacks[False].count(False))
