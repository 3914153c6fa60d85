# SPDX-License-Identifier: Apache-2.0
"""A known stack to be recorded: recursion, a generator, a coroutine, a callback through C, a method, a lambda, names
in other scripts. The last line of each call is known by the name "at NAME" that a comment of it has."""
import functools
import os
import sys
import threading


class Outer:
    class Inner:
        def method(self, f):
            return f()  # at method


def wait():
    # The thread's address is that of its control block.
    sys.stdout.write("%d %d\n" % (os.getpid(), threading.get_ident()))
    sys.stdout.flush()
    sys.stdin.read()  # at wait


def generator(f):
    yield f()  # at generator


async def coroutine(f):
    return f()  # at coroutine


def run(coro):
    try:
        coro.send(None)  # at run
    except StopIteration:
        pass


def recurse(n, f):
    if n:
        return recurse(n - 1, f)  # at recurse
    return f()


def größe(f):
    return next(generator(f))  # at größe


def 名前(f):
    return run(coroutine(lambda: größe(f)))  # at 名前


def by_c(f):
    return functools.reduce(lambda a, b: 名前(f), [1, 2])  # at by_c


def main():
    Outer.Inner().method(lambda: recurse(3, lambda: by_c(wait)))


main()
