# SPDX-License-Identifier: Apache-2.0
"""What the labels of a sample cost in BPF time: a program whose threads publish a trace id, a span id and three labels,
compared with the same program when it publishes nothing. They are measured in turn."""
import pathlib
import statistics
import subprocess
import tempfile

import depth

SOURCE = pathlib.Path(__file__).resolve().parents[2] / "tests/integration/labels"
MODES = ("steady", "unpublished")


def compile_program(path):
    subprocess.run(["cc", "-O2", "-D_GNU_SOURCE", "-fno-optimize-sibling-calls", "-o", path, "-I", SOURCE.parents[2],
                    SOURCE / "program.c", SOURCE / "context.c", "-Wl,--export-dynamic-symbol=otel_thread_ctx_v1", "-pthread"], check=True)


def bench(table, quick):
    seconds, rounds = (3, 3) if quick else (6, 9)
    got = {mode: [] for mode in MODES}
    with tempfile.TemporaryDirectory(prefix="kiln-bench-") as directory:
        program = f"{directory}/labels"
        compile_program(program)
        for _ in range(rounds):
            for mode in MODES:
                process = subprocess.Popen([program, mode], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
                try:
                    got[mode].append(depth.cost(directory, process.pid, seconds, more=', labels: ["*"]')[0])
                finally:
                    process.kill()
                    process.wait()
    more = [a - b for a, b in zip(*got.values())]
    table.add("BPF time a sample without labels, 997 Hz", statistics.median(got["unpublished"]), "ns")
    table.add("  more with a trace id, a span id and three labels", statistics.median(more), "ns", 150)
