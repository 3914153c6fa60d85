#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Follows an arm64 program under qemu-aarch64 instruction by instruction, and writes a recording, over which
test_recorded.c walks: before each instruction the registers and the words of the stack that have changed, and the true
return addresses. These come from the calls, returns and signals that happened, not from unwind information.

usage: record.py [OPTION...] OUT PROGRAM [ARGUMENT...]   (hack/record-arm64 calls it)

Beside OUT, OUT.files is the list of the files that are mapped. The format, little-endian: "KILNARM1", the mask of code
addresses, the number of mappings, and for each its start, end, bias, and name of 64 bytes; then events of one byte
with their arguments:
  R register value    x0..x30, sp, pc
  G address           a page of the stack, which can be read from now on; its words are 0
  M address value     a word of the stack
  C address           a call: the return address
  T                   a return
  S address pc        a signal: the return address of its handler, and the interrupted pc
  P pc                the handler changed the interrupted pc
  U                   sigreturn
  O                   there may be more frames than the calls that were seen
  W                   an instruction comes next: walk"""
import argparse
import os
import re
import socket
import struct
import subprocess
import sys
import time

BASE = 0x100000000000  # where the program's address 0 is in the emulator
REGISTERS = 33
SP, PC = 31, 32
RED_ZONE = 256
MASK = (1 << 48) - 1  # address bits of a task in the emulator
STACK_MAX = 1 << 20
OTHER_STACK = 1 << 17
SIGRETURN = 139
CONTEXT_PC = 184 + 32 * 8  # offset of the pc in the ucontext, the third argument of a handler
TRAP = 5


class Stub:
    """The emulator's gdb stub: the few packets of its protocol that are needed."""

    def __init__(self, port):
        for _ in range(100):
            try:
                self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
                break
            except OSError:
                time.sleep(0.05)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.rest = b""

    def byte(self):
        if not self.rest:
            self.rest = self.socket.recv(65536)
            if not self.rest:
                raise EOFError
        first, self.rest = self.rest[:1], self.rest[1:]
        return first

    def ask(self, text):
        data = text.encode()
        self.socket.sendall(b"$" + data + b"#%02x" % (sum(data) & 255))
        while self.byte() != b"$":
            pass
        answer = b""
        while (c := self.byte()) != b"#":
            answer += c
        self.byte(), self.byte()
        self.socket.sendall(b"+")
        return answer.decode()

    def registers(self):
        raw = bytes.fromhex(self.ask("g")[:REGISTERS * 16])
        return list(struct.unpack("<%dQ" % REGISTERS, raw))


class Recording:
    def __init__(self, out, pid, mappings, mask):
        self.out = open(out, "wb")
        self.memory = open(f"/proc/{pid}/mem", "rb", buffering=0)
        self.registers = [None] * REGISTERS
        self.stack = {}  # page -> its bytes
        self.skipped = set()  # addresses of functions that are not followed
        self.contexts = []  # of each signal: [address of the interrupted pc, its value]
        self.calls = []  # return addresses of calls, and interrupted pcs of signals
        self.walks = 0
        self.out.write(b"KILNARM1" + struct.pack("<QQ", mask, len(mappings)))
        for start, end, bias, name in mappings:
            self.out.write(struct.pack("<QQQ64s", start, end, bias & (1 << 64) - 1, os.path.basename(name).encode()))

    def read(self, address, size):
        return os.pread(self.memory.fileno(), size, address + BASE)

    def event(self, letter, *values):
        self.out.write(letter.encode())
        for value in values:
            self.out.write(struct.pack("<Q", value))

    def write_registers(self, registers):
        for i, value in enumerate(registers):
            if value != self.registers[i]:
                self.out.write(b"R" + struct.pack("<BQ", i, value))
        self.registers = registers

    def write_page(self, page, end):
        """Writes the words of PAGE, up to END, that have changed since they were last written."""
        try:
            new = self.read(page, 4096)
        except OSError:
            return
        old = self.stack.get(page)
        if new == old:
            return
        if not old:
            self.event("G", page)
        self.stack[page] = new
        for at in range(0, 4096, 8):
            word = new[at:at + 8]
            if page + at < end and word != (old[at:at + 8] if old else bytes(8)):
                self.event("M", page + at, struct.unpack("<Q", word)[0])

    def write_stack(self, sp, top):
        """Writes the stack from the red zone below SP up to TOP. When SP is on another stack, as in Go, writes OTHER_STACK
        bytes of that one."""
        low = (sp & ~7) - RED_ZONE
        if not top - STACK_MAX < sp <= top:
            top = sp + OTHER_STACK
        for page in range(low & ~4095, top, 4096):
            self.write_page(page, top)

    def write_changed_context(self):
        """Writes the interrupted pc of the innermost signal when its handler has changed it."""
        if self.contexts:
            at, before = self.contexts[-1]
            now = struct.unpack("<Q", self.read(at, 8))[0]
            if now != before:
                self.contexts[-1][1] = now
                self.event("P", now)


def instruction_kind(word):
    if word & 0xfc000000 == 0x94000000 or word & 0xfefffc00 == 0xd63f0000 or word & 0xfefff800 == 0xd63f0800:
        return "call"
    if word & 0xfffffc1f == 0xd65f0000 or word & 0xfffffbff == 0xd65f0bff:
        return "return"
    return "svc" if word == 0xd4000001 else ""


def call_target(recording, pc):
    """Address that the instruction at PC calls; 0 when it is no call, or a call by a register."""
    word = struct.unpack("<I", recording.read(pc, 4))[0]
    return pc + ((word & 0x3ffffff) - (word & 0x2000000) * 2) * 4 if word & 0xfc000000 == 0x94000000 else 0


def account(recording, pc, now):
    """Records the call or return at PC, which has been executed; NOW: the pc after it. Returns the instruction's kind."""
    kind = instruction_kind(struct.unpack("<I", recording.read(pc, 4))[0])
    if kind == "call":
        recording.event("C", pc + 4)
        recording.calls.append(pc + 4)
    elif kind == "return":
        recording.event("T")
        if recording.calls and now != recording.calls.pop():
            raise RuntimeError(f"{pc:#x} returns to {now:#x}, which nothing has called")
    return kind


def step(stub, recording, registers, signal):
    """Executes one instruction, or delivers SIGNAL. Returns (registers, signal to deliver next), or None at the program's
    end. The emulator executes one instruction more when a signal comes, and after a system call."""
    pc = registers[PC]
    if call_target(recording, pc) in recording.skipped and not signal:
        run_to(stub, pc + 4)
        return stub.registers(), 0
    answer = stub.ask(f"vCont;S{signal:02x}" if signal else "s")
    if answer[0] in "WX":
        if answer != "W00":
            raise RuntimeError(f"the program ended with {answer}")
        return None
    due = int(answer[1:3], 16)
    now = stub.registers()
    if signal:  # the handler's first instruction may sign x30
        recording.event("S", now[30] & MASK, pc)
        recording.calls += [pc, now[30] & MASK]
        recording.contexts.append([now[2] + CONTEXT_PC, pc])
        return now, 0
    if due != TRAP:
        return now, due
    if account(recording, pc, now[PC]) == "svc":
        after = pc + 4
        if registers[8] == SIGRETURN:
            _, after = recording.contexts.pop()
            recording.event("U")
            recording.calls.pop()
        if now[PC] != after:
            account(recording, after, now[PC])
    return now, 0


def readelf(*arguments):
    return subprocess.run(["readelf", "-W", *arguments], capture_output=True, text=True, check=True).stdout


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def mapped_files(pid):
    """{path of an ELF file: address at which it is mapped in the program}."""
    found = {}
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
        for line in maps:
            start, path = re.match(r"(\w+)-\S+ \S+ \S+ \S+ \S+ *(.*)", line).groups()
            if BASE <= int(start, 16) < 2 * BASE and path.startswith("/"):
                found.setdefault(path, int(start, 16) - BASE)
    return {path: start for path, start in found.items() if is_elf(path)}


def segments_of(path):
    """[(address, size, flags)] of the loaded segments of the file at PATH."""
    return [(int(address, 16), int(size, 16), flags) for address, size, flags in
            re.findall(r"LOAD +\w+ (\w+) \w+ \w+ (\w+) (R.[E ])", readelf("-l", path))]


def bias_of(path, start):
    return start - (segments_of(path)[0][0] & ~4095)


def executable_mappings(pid):
    """(start, end, bias, path) of the executable segment of each file."""
    found = []
    for path, start in mapped_files(pid).items():
        bias = bias_of(path, start)
        for address, size, flags in segments_of(path):
            if "E" in flags:
                found.append((bias + (address & ~4095), bias + address + size + 4095 & ~4095, bias, path))
    return found


def run_to(stub, address):
    stub.ask(f"Z0,{address:x},4")
    answer = stub.ask("c")
    stub.ask(f"z0,{address:x},4")
    if not answer.startswith("T05"):
        raise RuntimeError(f"the program does not come to {address:#x}: {answer}")


def functions(path, start, pattern):
    """Addresses of the functions whose names match PATTERN in the file at PATH, which is mapped at START."""
    return [bias_of(path, start) + int(value, 16) for value in
            re.findall(rf"(\w+) +\d+ FUNC +\w+ +\w+ +\d+ (?:{pattern})(?:@|$)", readelf("--syms", path), re.M)]


def begin(stub, pid, program, marker):
    """Runs the program to its entry point, and on to the function MARKER, if it is given. Returns the stack pointer at the
    entry point."""
    path, start = next((p, s) for p, s in mapped_files(pid).items() if os.path.samefile(p, program))
    entry = int(re.search(r"Entry point address: +(\w+)", readelf("-h", path))[1], 16)
    if "DYN" in re.search(r"Type: +(.*)", readelf("-h", path))[1]:
        entry += bias_of(path, start)
    if stub.registers()[PC] != entry:
        run_to(stub, entry)
    top = stub.registers()[SP]
    for path, start in mapped_files(pid).items() if marker else []:
        found = functions(path, start, re.escape(marker))
        if found:
            run_to(stub, found[0])
            return top
    if marker:
        raise RuntimeError(f"no function {marker}")
    return top


def follow(stub, pid, options):
    top = begin(stub, pid, options.program, options.marker)
    registers, signal = stub.registers(), 0
    mappings = executable_mappings(pid)
    with open(options.out + ".files", "w", encoding="utf-8") as files:
        files.writelines(f"{path}\n" for *_, path in mappings)
    recording = Recording(options.out, pid, mappings, MASK)
    if options.marker:
        recording.event("O")
    if options.skip:
        recording.skipped = {f for p, s in mapped_files(pid).items() for f in functions(p, s, options.skip)}
    for i in range(options.steps):
        recording.write_stack(registers[SP], top)
        recording.write_registers(registers)
        recording.write_changed_context()
        if not signal and i % options.every == 0:
            recording.event("W")
            recording.walks += 1
        after = step(stub, recording, registers, signal)
        if after is None:
            return recording
        registers, signal = after
    return recording


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", default="/usr/aarch64-linux-gnu", help="where the program's libraries are")
    parser.add_argument("--steps", type=int, default=50000, help="instructions at most")
    parser.add_argument("--every", type=int, default=1, help="walk before each of so many")
    parser.add_argument("--marker", help="begin at the first call of this function")
    parser.add_argument("--skip", help="functions, a regular expression: calls of them are not followed")
    parser.add_argument("--env", action="append", default=[], help="NAME=VALUE of its environment")
    parser.add_argument("out")
    parser.add_argument("program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    port = 20000 + os.getpid() % 10000
    program = subprocess.Popen(["qemu-aarch64", "-cpu", "max", "-L", options.root, "-B", hex(BASE), "-g", str(port),
                                options.program, *options.arguments], env=dict(v.split("=", 1) for v in options.env), stdout=subprocess.DEVNULL)
    try:
        recording = follow(Stub(port), program.pid, options)
    finally:
        program.kill()
        program.wait()
    recording.out.close()
    print(f"{os.path.basename(options.out)}: {recording.walks} walks")


main()
