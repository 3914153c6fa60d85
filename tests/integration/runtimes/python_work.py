# SPDX-License-Identifier: Apache-2.0
"""A program with known call chains, for Python 3.6 and later. Says its chains as JSON, works until it is killed.

Each chain is a list of [function, line], leaf first, Python's frames only; "work" is where the time goes. A line has
the comment "at NAME" in the source; NAME is the function's, or what comes after a slash tells two apart. Where
qualified names are not known (before 3.11) the function's own name stands.

usage: python_work.py [OPTION...] [CHAIN...]"""
import asyncio
import functools
import hashlib
import json
import os
import re
import sys
import threading
import time

DATA = bytes(1 << 20)
SLICE = 0.1  # seconds of CPU time for each chain: what is between two is nothing against it
HERE = os.path.realpath(__file__)
QUALIFIED = sys.version_info >= (3, 11)


def work(until):
    """The leaf: runs for a while without calling anything."""
    total = 0
    while time.process_time() < until:  # at work/test
        for i in range(2000):  # at work/for
            total += i * i  # at work/add
    return total


def slice_end():
    return time.process_time() + SLICE


# ---- recursion

def recurse(n):
    if n == 0:
        return work(slice_end())  # at recurse/end
    return recurse(n - 1)  # at recurse/deeper


def recursion(n):
    return recurse(n)  # at recursion


# ---- generators

def inner_generator():
    for _ in range(2):
        yield work(slice_end())  # at inner_generator


def outer_generator():
    yield from inner_generator()  # at outer_generator


def generators():
    for _ in outer_generator():  # at generators
        pass


# ---- coroutines

class Ready:
    def __await__(self):
        yield work(slice_end())  # at Ready.__await__


async def inner_coroutine():
    await Ready()  # at inner_coroutine


async def outer_coroutine():
    await inner_coroutine()  # at outer_coroutine


def coroutines():
    coro = outer_coroutine()
    try:
        while True:
            coro.send(None)  # at coroutines
    except StopIteration:
        pass


def event_loop():
    loop = asyncio.new_event_loop()
    loop.run_until_complete(task())  # at event_loop
    loop.close()


async def task():
    work(slice_end())  # at task


# ---- callbacks through C

def key(_):
    return work(slice_end())  # at key


def by_sorted():
    return sorted([3, 1, 2], key=key)  # at by_sorted


def by_reduce():
    return functools.reduce(lambda a, b: work(slice_end()), [1, 2, 3])  # at by_reduce.<locals>.<lambda> # at by_reduce


def substitute(_):
    work(slice_end())  # at substitute
    return "x"


def by_sub():
    return re.sub("a", substitute, "aa")  # at by_sub


# ---- classes and closures

class Outer:
    class Inner:
        def method(self, f):
            return f()  # at Outer.Inner.method

        @property
        def value(self):
            return work(slice_end())  # at Outer.Inner.value

        def __call__(self):
            return self.value  # at Outer.Inner.__call__


def classes():
    inner = Outer.Inner()

    def closure():
        return inner()  # at classes.<locals>.closure

    return inner.method(closure)  # at classes


# ---- names in other scripts

def größe_名前_𐐷():
    return work(slice_end())  # at größe_名前_𐐷


def unicode():
    return größe_名前_𐐷()  # at unicode


# ---- without the interpreter's lock

def unlocked():
    end = slice_end()
    while time.process_time() < end:  # at unlocked
        hashlib.sha256(DATA).digest()  # at unlocked


# ---- another interpreter in the same process and thread

class Sub:
    """None where Python has no module for it (before 3.8)."""
    made = None

    @classmethod
    def make(cls):
        try:
            try:
                import _interpreters as module
            except ImportError:
                import _xxsubinterpreters as module
            cls.made = module, module.create()
            cls.run("import sys; sys.path.insert(0, %r); import python_work" % os.path.dirname(HERE))
        except ImportError:
            cls.made = None
        return cls.made

    @classmethod
    def run(cls, code):
        cls.made[0].run_string(cls.made[1], code)


def sub_leaf():
    return work(slice_end())  # at sub_leaf


def by_subinterpreter():
    module, which = Sub.made
    module.run_string(which, "python_work.sub_leaf()")  # at by_subinterpreter


CHAINS = {
    "recursion": [["recurse", "recurse/end"], *[["recurse", "recurse/deeper"]] * 12, ["recursion"]],
    "deep": [["recurse", "recurse/end"], *[["recurse", "recurse/deeper"]] * 900, ["recursion"]],
    "generators": [["inner_generator"], ["outer_generator"], ["generators"]],
    "coroutines": [["Ready.__await__"], ["inner_coroutine"], ["outer_coroutine"], ["coroutines"]],
    "event_loop": [["task"], "*", ["event_loop"]],
    "by_sorted": [["key"], ["by_sorted"]],
    "by_reduce": [["by_reduce.<locals>.<lambda>"], ["by_reduce"]],
    "by_sub": [["substitute"], "*", ["by_sub"]],
    "classes": [["Outer.Inner.value"], ["Outer.Inner.__call__"], ["classes.<locals>.closure"],
                ["Outer.Inner.method"], ["classes"]],
    "unicode": [["größe_名前_𐐷"], ["unicode"]],
    "unlocked": [["unlocked"]],
    "by_subinterpreter": [["sub_leaf"], "*", ["by_subinterpreter"]],
}
DIRECT = {"unlocked"}  # do not call work()
FUNCTIONS = {"deep": "recursion"}
ARGUMENTS = {"recursion": (12,), "deep": (900,)}


def run(names):
    functions = [(globals()[FUNCTIONS.get(name, name)], ARGUMENTS.get(name, ())) for name in names]
    while True:
        for function, arguments in functions:
            function(*arguments)  # at run


def started(names):
    run(names)  # at started


# ---- what it says

def lines():
    found = {}
    with open(HERE, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            for name in re.findall(r"# at (\S+)", line):
                found.setdefault(name, []).append(number)
    return found


def describe(name, tail):
    at, out = lines(), []
    frames = list(CHAINS[name])
    if name not in DIRECT:
        out.append(["work", at["work/test"] + at["work/for"] + at["work/add"]])
    for frame in frames + tail:
        if frame == "*":
            out.append("*")
            continue
        function = frame[0] if QUALIFIED else frame[0].rsplit(".", 1)[-1]
        out.append([function, at[frame[-1]]])
    return out


def say(pids, chains):
    print(json.dumps({"pid": os.getpid(), "pids": pids, "file": HERE, "version": list(sys.version_info[:3]),
                      "chains": chains}))
    sys.stdout.flush()


def main():
    """Options: --thread, another thread does the same; --embedded, others called main(); --fork N, children do it;
    --exec PYTHON, after 3 s it is done by that interpreter in the same process; --again, each second by a new one;
    --respawn, children do it, each for 1.5 s; --ms N, it ends then."""
    options = dict(zip(sys.argv[1:], sys.argv[2:]))
    names = [name for name in sys.argv[1:] if name in CHAINS]
    if not names:
        names = [name for name in CHAINS if name != "by_subinterpreter"]
        if Sub.make():
            names.append("by_subinterpreter")
    tail = [["run"], ["main"], ["<module>"]] + (["*"] if "--embedded" in sys.argv else [])
    chains = [describe(name, tail) for name in names]
    sys.setrecursionlimit(5000)
    threading.stack_size(64 << 20)
    pids = [os.getpid()]
    for _ in range(int(options.get("--fork", 0))):
        pid = os.fork()
        if not pid:
            time.sleep(1)
            run(names)  # at main
        pids.append(pid)
    if "--thread" in sys.argv:
        others = [name for name in names if name != "by_subinterpreter"]
        chains += [describe(name, [["run"], ["started"], "*"]) for name in others]
        threading.Thread(target=started, args=(others,), daemon=True).start()
    if "--exec" in sys.argv:
        again = [options["--exec"], HERE] + names
        threading.Timer(3, lambda: os.execv(again[0], again)).start()
    if "--again" in sys.argv:
        threading.Timer(1, lambda: os.execv(sys.executable, [sys.executable] + sys.argv)).start()
    if "--ms" in sys.argv:
        threading.Timer(int(options["--ms"]) / 1000, lambda: os._exit(0)).start()
    say(pids, chains)
    while "--respawn" in sys.argv:
        if respawn():
            break
    run(names)  # at main


def respawn():
    """Two workers, until they end. True: this is one of them."""
    for _ in range(2):
        pid = os.fork()
        if not pid:
            threading.Timer(1.5, lambda: os._exit(0)).start()
            return True
        print(json.dumps({"pid": pid}))
        sys.stdout.flush()
    for _ in range(2):
        os.wait()
    return False


if __name__ == "__main__":
    main()  # at <module>
