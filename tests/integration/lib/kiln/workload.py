# SPDX-License-Identifier: Apache-2.0
"""Starts a workload, reads the chains that it reports, and ends it."""
import ctypes
import json
import os
import shutil
import subprocess
import tempfile

from . import agent, chains

CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 0x40000


def directory():
    if os.environ.get("KILN_WORKLOADS"):
        return os.environ["KILN_WORKLOADS"]
    found = [os.path.join(agent.ROOT, "build", p, "workloads") for p in ("release", "dev")]
    found = [d for d in found if os.path.exists(os.path.join(d, "missing"))]
    if not found:
        raise FileNotFoundError("no workloads: set KILN_WORKLOADS or build a preset with tests")
    return found[0]


def path(name):
    return os.path.join(directory(), "wl-" + name)


def missing(name):
    """The compiler for lack of which the workload was not built, or None."""
    with open(os.path.join(directory(), "missing"), encoding="utf-8") as f:
        return dict(line.split() for line in f).get(name)


class Workload:
    """A running workload. WHERE: None, "deleted", "replaced", "chroot" or "mount" (a chroot in a mount
    namespace of its own, whose files the host does not see)."""

    def __init__(self, name, *arguments, seconds=20, where=None, symbols=None):
        self.name = name
        self.path = path(name)
        self.dir = tempfile.TemporaryDirectory(prefix="kiln-wl-")
        program, before = path(name), None
        command = [program]
        if where in ("deleted", "replaced"):
            program = os.path.join(self.dir.name, os.path.basename(program))
            shutil.copy(path(name), program)
            command = [program]
        elif where in ("chroot", "mount"):
            program, command, before = self._root(where)
        arguments = [directory() if a == "DIR" else str(a) for a in arguments]
        self.process = subprocess.Popen([*command, str(seconds), *arguments], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, text=True, preexec_fn=before)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{name} ended at once: {self.process.wait()}")
        self.said = json.loads(line)
        self.pid = self.said["pid"]
        if where == "deleted":
            os.unlink(program)
        elif where == "replaced":
            other = program + ".new"
            shutil.copy(path("qsort-impostor"), other)
            os.rename(other, program)
        names = chains.Names(os.path.basename(program), path(name), path(symbols) if symbols else None,
                             "either" if where in ("chroot", "mount") else "/usr/lib/debug")
        self.chains = [chains.Chain(c, names) for c in self.said["chains"]]

    def _root(self, where):
        """Makes a root directory with the program and copies of its libraries: (program, command, preexec function). For
        /kiln-trap the host has another file of the same path, which the agent must not read instead."""
        root = os.path.join(self.dir.name, "root")
        libc = ctypes.CDLL(None, use_errno=True)
        files = [(path("chroot"), "/bin/wl-chroot"), (os.path.join(directory(), "right/libtrap.so"), "/kiln-trap/libtrap.so"),
                 (chains.LIBC, "/lib/x86_64-linux-gnu/libc.so.6"),
                 (chains.LIBRARIES["ld-linux-x86-64.so.2"], "/lib64/ld-linux-x86-64.so.2")]
        os.mkdir(root)
        os.makedirs("/kiln-trap", exist_ok=True)
        shutil.copy(os.path.join(directory(), "wrong/libtrap.so"), "/kiln-trap/libtrap.so")

        def fill():
            for source, target in files:
                os.makedirs(os.path.dirname(root + target), exist_ok=True)
                shutil.copy(os.path.realpath(source), root + target)

        def enter():
            if where == "mount":
                if libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None):
                    raise OSError(ctypes.get_errno(), "unshare")
                if libc.mount(b"kiln", root.encode(), b"tmpfs", 0, None):
                    raise OSError(ctypes.get_errno(), "mount")
                fill()
            os.chroot(root)
            os.chdir("/")

        if where == "chroot":
            fill()
        return "wl-chroot", ["/bin/wl-chroot"], enter

    def rest(self, timeout=60):
        """Waits for the end of the workload; the JSON objects that it has printed since its first line."""
        out, _ = self.process.communicate(timeout=timeout)
        return [json.loads(line) for line in out.splitlines() if line.startswith("{")]

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.dir.cleanup()
        shutil.rmtree("/kiln-trap", ignore_errors=True)
        try:
            os.unlink(f"/tmp/perf-{self.pid}.map")
        except OSError:
            pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
