# SPDX-License-Identifier: Apache-2.0
"""A program with known call chains, for Python 3.6 and later. Says its chains as JSON, works until it is killed.

Each chain is a list of [function, line], leaf first, Python's frames only; "work" is where the time goes. A line has
the comment "at NAME" in the source; NAME is the function's, or what comes after a slash tells two apart. Where
qualified names are not known (before 3.11) the function's own name stands.

usage: python_work.py [--thread] [CHAIN...]"""
import functools
import hashlib
import json
import os
import re
import sys
import threading
import time

DATA = bytes(1 << 20)
HERE = os.path.realpath(__file__)
QUALIFIED = sys.version_info >= (3, 11)


def work(until):
    """The leaf: runs for a while without calling anything."""
    total = 0
    while time.perf_counter() < until:  # at work/test
        for i in range(2000):  # at work/for
            total += i * i  # at work/add
    return total


def slice_end():
    return time.perf_counter() + 0.05


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
    import asyncio
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
    while time.perf_counter() < end:  # at unlocked
        hashlib.sha256(DATA).digest()  # at unlocked


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


def main():
    """The main thread does all chains in turn; with --thread another one does so as well."""
    names = [name for name in sys.argv[1:] if name != "--thread"] or list(CHAINS)
    chains = [describe(name, [["run"], ["main"], ["<module>"]]) for name in names]
    sys.setrecursionlimit(5000)
    threading.stack_size(64 << 20)
    if "--thread" in sys.argv:
        chains += [describe(name, [["run"], ["started"], "*"]) for name in names]
        threading.Thread(target=started, args=(names,), daemon=True).start()
    print(json.dumps({"pid": os.getpid(), "file": HERE, "version": list(sys.version_info[:3]), "chains": chains}))
    sys.stdout.flush()
    run(names)  # at main


if __name__ == "__main__":
    main()  # at <module>
