# SPDX-License-Identifier: Apache-2.0
"""Reads function symbols of ELF files with the standard library only; knows which names are aliases."""
import os
import struct
from functools import lru_cache

SHT_SYMTAB, SHT_NOTE, SHT_DYNSYM, STT_FUNC, STT_IFUNC = 2, 7, 11, 2, 10


class Elf:
    """Functions of one 64-bit little-endian ELF file and of its separate debug file, if there is one."""

    def __init__(self, path, debug_dir="/usr/lib/debug"):
        with open(path, "rb") as f:
            data = f.read()
        self.path = path
        self.functions = []  # (address, size, name)
        self.build_id = None
        self._read(data)
        if self.build_id and debug_dir:
            debug = f"{debug_dir}/.build-id/{self.build_id[:2]}/{self.build_id[2:]}.debug"
            if os.path.exists(debug):
                with open(debug, "rb") as f:
                    self._read(f.read())
        self.by_address = {}
        self.by_name = {}
        for address, size, name in self.functions:
            self.by_address.setdefault(address, set()).add(name)
            self.by_name.setdefault(name, set()).add((address, size))

    def _read(self, data):
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError("no 64-bit little-endian ELF file")
        shoff, = struct.unpack_from("<Q", data, 40)
        shentsize, shnum = struct.unpack_from("<HH", data, 58)
        sections = [struct.unpack_from("<IIQQQQIIQQ", data, shoff + i * shentsize) for i in range(shnum)]
        for _, kind, _, _, offset, size, link, _, _, entsize in sections:
            if kind in (SHT_SYMTAB, SHT_DYNSYM) and entsize:
                strings = sections[link]
                self._symbols(data, offset, size, entsize, strings[4])
            elif kind == SHT_NOTE and size >= 16 and not self.build_id:
                namesz, descsz, note = struct.unpack_from("<III", data, offset)
                if note == 3 and data[offset + 12:offset + 16] == b"GNU\0" and namesz == 4:
                    self.build_id = data[offset + 16:offset + 16 + descsz].hex()

    def _symbols(self, data, offset, size, entsize, strings):
        for at in range(offset, offset + size, entsize):
            name, info, _, shndx, value, length = struct.unpack_from("<IBBHQQ", data, at)
            if info & 15 in (STT_FUNC, STT_IFUNC) and shndx:
                end = data.index(b"\0", strings + name)
                self.functions.append((value, length, data[strings + name:end].decode()))

    def aliases(self, name):
        """All names of symbols at the address of the symbol NAME; empty when there is no such symbol."""
        out = set()
        for address, _ in self.by_name.get(name, ()):
            out |= self.by_address[address]
        return out

    def sized(self, name):
        """Whether a symbol of this name covers any byte."""
        return any(size for _, size in self.by_name.get(name, ()))

    def names(self):
        return set(self.by_name)

    def at(self, address):
        """Names of the functions that cover ADDRESS."""
        return {n for a, s, n in self.functions if a <= address < a + s}


@lru_cache(maxsize=None)
def load(path, debug_dir="/usr/lib/debug"):
    return Elf(os.path.realpath(path), debug_dir)
