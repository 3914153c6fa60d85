# SPDX-License-Identifier: Apache-2.0
"""The table of workloads for the stack tests: how each is run, and its peculiarities."""
from dataclasses import dataclass, field


@dataclass
class Row:
    id: str
    name: str  # the program's name without wl-
    arguments: tuple = ()
    where: str = None  # see workload.Workload
    symbols: str = None  # the workload that is the same program, unstripped
    tree: bool = False  # processes come and go: select by name, not by pid
    cpus: float = 1.0  # how many CPUs it keeps busy on an idle machine
    agent: tuple = field(default_factory=tuple)
    # How many of the first samples may be incomplete: they are walked in a copy of one stack, but the program uses two.
    first: int = 0


ROWS = [
    Row("qsort", "qsort", (110, 11)),
    Row("qsort-every", "qsort", (110, 1)),
    Row("qsort-nopie", "qsort-nopie", (110, 11)),
    Row("qsort-static", "qsort-static", (110, 11)),
    Row("qsort-static-pie", "qsort-static-pie", (110, 11)),
    Row("qsort-debugframe", "qsort-debugframe", (110, 11)),
    Row("qsort-protected", "qsort-protected", (110, 11)),
    Row("qsort-stripped", "qsort-stripped", (110, 11), symbols="qsort"),
    Row("qsort-debuglink", "qsort-debuglink", (110, 11)),
    Row("qsort-minidebug", "qsort-minidebug", (110, 11)),
    Row("qsort-deleted", "qsort", (110, 11), where="deleted"),
    Row("qsort-replaced", "qsort", (110, 11), where="replaced"),
    Row("nest", "nest", (31,)),
    Row("nest-static", "nest-static", (31,)),
    Row("nest-musl", "nest-musl", (31,)),
    Row("nest-musl-dynamic", "nest-musl-dynamic", (31,)),
    Row("signal-stay", "signal", ("stay",)),
    Row("signal-return", "signal", ("return",)),
    Row("signal-altstack", "signal", ("return", "altstack"), first=15),
    Row("signal-static", "signal-static", ("return",)),
    Row("vdso", "kernel", ("vdso",)),
    Row("urandom", "kernel", ("urandom",)),
    Row("getrandom", "kernel", ("getrandom",)),
    Row("threads", "threads", cpus=8),
    Row("threads-static", "threads-static", cpus=8),
    Row("dlopen", "dlopen", ("DIR",)),
    Row("dlopen-keep", "dlopen", ("DIR", "keep")),
    Row("chroot", "chroot", where="chroot"),
    Row("mount-namespace", "chroot", where="mount"),
    Row("frames-large", "frames", ("large",)),
    Row("frames-alloca", "frames", ("alloca",)),
    Row("frames-realign", "frames", ("realign",)),
    Row("frames-realign-avx", "frames-avx", ("realign",)),
    Row("frames-kept", "frames", ("kept",)),
    Row("frames-longjmp", "frames", ("longjmp",)),
    Row("plt-lazy", "plt-lazy"),
    Row("plt-lazy-cet", "plt-lazy-cet"),
    Row("plt-now", "plt-now"),
    Row("fork", "fork", tree=True, cpus=2),
    Row("exec", "exec-left", ("DIR",)),
    Row("jit", "jit"),
    Row("bare", "bare"),
    Row("bare-cet", "bare-cet"),
    Row("bare-stripped", "bare-stripped", symbols="bare"),
    Row("bare-clang", "bare-clang"),
    Row("cxx-calls", "cxx", ("calls",)),
    Row("cxx-throw", "cxx", ("throw",)),
    Row("rust-legacy", "rust-legacy"),
    Row("rust-v0", "rust-v0"),
    Row("go", "go", cpus=2),
    Row("go-stripped", "go-stripped", cpus=2),
    Row("cgo", "cgo", first=15),
]
