#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A FUSE filesystem that stops answering on command. It has one directory, with the files of SOURCE.

  silent_fuse.py SOURCE MOUNTPOINT     commands, one a line on stdin: "hang" (answer nothing), "hang-middle" (do not
                                       answer reads beyond the first MiB of a file and before its end), "answer"; each
                                       is repeated on stdout when it is in effect

Implements the kernel's protocol itself (include/uapi/linux/fuse.h, version 7.31), read-only, one request at a time. The
mount is removed when the process ends."""
import ctypes
import errno
import os
import select
import stat
import struct
import sys

LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE, FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR, ACCESS = (
    1, 2, 3, 14, 15, 17, 18, 25, 26, 27, 28, 29, 34)
INTERRUPT, BATCH_FORGET = 36, 42
MS_NOSUID, MS_NODEV, MNT_DETACH = 2, 4, 2
HEADER = struct.Struct("=IIQQIIII")  # len opcode unique nodeid uid gid pid padding
BUFFER = (1 << 17) + 4096
HEAD, TAIL = 1 << 20, 1 << 18  # bytes; the middle of a file is between them. Both are larger than the read-ahead
ROOT = 1


class Files:
    """Node ids: 1 is the directory, the files are 2, 3, ... in the order of their names."""

    def __init__(self, source):
        self.source = source
        self.names = sorted(os.listdir(source))

    def node(self, name):
        return self.names.index(name) + 2

    def path(self, node):
        return self.source if node == ROOT else os.path.join(self.source, self.names[node - 2])

    def attr(self, node):
        s = os.stat(self.path(node))
        mode = (stat.S_IFDIR if node == ROOT else stat.S_IFREG) | 0o755
        # struct fuse_attr
        return struct.pack("=QQQQQQIIIIIIIIII", node, s.st_size, s.st_size // 512 + 1, int(s.st_atime),
                           int(s.st_mtime), int(s.st_ctime), 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer(files, opcode, node, body):
    """The bytes after the reply header, or a negative errno. None: the request expects no reply."""
    if opcode in (FORGET, BATCH_FORGET, INTERRUPT):
        return None
    if opcode == INIT:
        # struct fuse_init_out: major minor max_readahead flags max_background congestion max_write granularity ...
        return struct.pack("=IIIIHHIIHHI28x", 7, 31, 1 << 17, 0, 12, 9, 1 << 17, 1, 0, 0, 0)
    if opcode == LOOKUP:
        name = body.rstrip(b"\0").decode()
        if node != ROOT or name not in files.names:
            return -errno.ENOENT
        # struct fuse_entry_out. The validity times are 0, so that the kernel asks again for each access.
        return struct.pack("=QQQQII", files.node(name), 0, 0, 0, 0, 0) + files.attr(files.node(name))
    if opcode == GETATTR:
        return struct.pack("=QII", 0, 0, 0) + files.attr(node)
    if opcode in (OPEN, OPENDIR):
        return struct.pack("=QII", 0, 2, 0)  # FOPEN_KEEP_CACHE
    if opcode == READ:
        _, offset, size = struct.unpack_from("=QQI", body)
        with open(files.path(node), "rb") as f:
            f.seek(offset)
            return f.read(size)
    if opcode == STATFS:
        return bytes(80)
    if opcode in (RELEASE, FLUSH, RELEASEDIR, ACCESS, READDIR):
        return b""
    return -errno.ENOSYS


def reply(fd, files, request):
    _, opcode, unique, node, *_ = HEADER.unpack_from(request)
    got = answer(files, opcode, node, request[HEADER.size:])
    if got is None:
        return
    error, data = (got, b"") if isinstance(got, int) else (0, got)
    try:
        os.write(fd, struct.pack("=IiQ", 16 + len(data), error, unique) + data)
    except FileNotFoundError:
        pass  # the request was interrupted: the kernel does not wait for the reply any more


def is_in_the_middle(files, request):
    _, opcode, _, node, *_ = HEADER.unpack_from(request)
    if opcode != READ:
        return False
    _, offset, size = struct.unpack_from("=QQI", request, HEADER.size)
    return offset >= HEAD and offset + size <= os.stat(files.path(node)).st_size - TAIL


def serve(fd, files):
    mode, held = "answer\n", []
    while True:
        readable = select.select([sys.stdin] if mode == "hang\n" else [sys.stdin, fd], [], [])[0]
        if sys.stdin in readable:
            mode = sys.stdin.readline()
            if not mode:
                return
            if mode == "answer\n":
                for request in held:
                    reply(fd, files, request)
                held = []
            print(mode, end="", flush=True)
            continue
        request = os.read(fd, BUFFER)
        if mode == "hang-middle\n" and is_in_the_middle(files, request):
            held.append(request)
        else:
            reply(fd, files, request)


def main():
    source, target = sys.argv[1:3]
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other"
    if libc.mount(b"kiln-silent", target.encode(), b"fuse.kiln", MS_NOSUID | MS_NODEV, options.encode()):
        raise OSError(ctypes.get_errno(), "mount")
    try:
        print("mounted", flush=True)
        serve(fd, Files(source))
    finally:
        libc.umount2(target.encode(), MNT_DETACH)


main()
