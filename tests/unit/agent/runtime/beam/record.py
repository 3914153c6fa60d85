#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the data of test_recorded.c from a process that has loaded the module beam_swap: the JIT's list of modules, cut down
to beam_swap, the JIT's own entries and the entry with process_main(); and the code of process_main() and of beam_swap.
usage: record.py PID > tests/data/beam/RELEASE.txt"""
import struct
import subprocess
import sys

PID = int(sys.argv[1])
MEMORY = open(f"/proc/{PID}/mem", "rb", 0)  # noqa: SIM115


def read(address, size):
    MEMORY.seek(address)
    return MEMORY.read(size)


def put(address, data):
    print(f"memory {address:x} {data.hex()}")


def descriptor():
    with open(f"/proc/{PID}/maps", encoding="ascii") as f:
        maps = [line.split() for line in f]
    exe = [m for m in maps if m[-1].endswith("beam.smp")]
    base = int(exe[0][0].split("-")[0], 16)
    symbols = subprocess.run(["readelf", "-W", "--dyn-syms", f"/proc/{PID}/exe"], capture_output=True, text=True, check=True)
    for line in symbols.stdout.splitlines():
        if line.endswith(" __jit_debug_descriptor"):
            return base + int(line.split()[1], 16)
    # Without the symbol: the writable data of beam.smp is searched for {1, 0, 0, first entry}, where the first entry has the
    # description of a module.
    for m in [m for m in exe if "w" in m[1]] + [maps[maps.index(exe[-1]) + 1]]:
        start, end = (int(x, 16) for x in m[0].split("-"))
        data = read(start, end - start)
        for at in range(0, len(data) - 24, 8):
            version, _, relevant, first = struct.unpack_from("<IIQQ", data, at)
            if version == 1 and not relevant and first and first % 8 == 0 and first >> 47 == 0:
                try:
                    _, prev, symfile, _ = struct.unpack("<4Q", read(first, 32))
                    if not prev and read(symfile, 4) == b"\1\0\0\0":
                        return start + at
                except (OSError, ValueError, struct.error):
                    pass
    raise SystemExit("no list of modules")


def main():
    at = descriptor()
    head, kept, entry = read(at, 24), [], struct.unpack("<Q", read(at + 16, 8))[0]
    while entry:
        following, _, symfile, size = struct.unpack("<4Q", read(entry, 32))
        text = read(symfile, size)
        if text[:4] == b"\0\0\0\0" or text[26:].startswith(b"beam_swap\0") or b"global::process_main\0" in text:
            kept.append((entry, symfile, text))
        entry = following
    links = [0, *(entry for entry, _, _ in kept), 0]
    put(at, head[:16] + struct.pack("<Q", kept[0][0]))
    for i, (entry, symfile, text) in enumerate(kept, 1):
        put(entry, struct.pack("<4Q", links[i + 1], links[i - 1], symfile, len(text)))
        put(symfile, text)
        base, _, size = struct.unpack_from("<QII", text, 8)
        if b"global::process_main\0" in text:
            name = text.index(b"global::process_main\0")
            start, = struct.unpack_from("<I", text, name - 14)
            put(base + start, read(base + start, 512))
        elif text[:4] != b"\0\0\0\0":
            put(base, read(base, size))
    print(f"descriptor {at:x}")


main()
