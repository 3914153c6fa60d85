# SPDX-License-Identifier: Apache-2.0
"""
What Python threads wait for, as tests/workloads/waits.c does in C. usage: waits.py SECONDS
"""
import json
import os
import select
import sys
import threading
import time

END = 0
RESULT = {}


def wait_lock():
    while time.monotonic_ns() < END:
        with LOCK:
            pass


def wait_holding():
    while time.monotonic_ns() < END:
        with LOCK:
            time.sleep(0.02)
        time.sleep(0.001)


def wait_sleep():
    while time.monotonic_ns() < END:
        time.sleep(0.005)


def wait_select():
    while time.monotonic_ns() < END:
        select.select([], [], [], 0.03)


def wait_pipe():
    while os.read(ENDS[0], 1):
        pass


def wait_writing():
    while time.monotonic_ns() < END:
        time.sleep(0.01)
        os.write(ENDS[1], b"x")
    os.close(ENDS[1])


def ran(tid):
    with open(f"/proc/self/task/{tid}/schedstat") as f:
        return int(f.read().split()[0])


def run(place):
    tid = threading.get_native_id()
    began, before = time.monotonic_ns(), ran(tid)
    place()
    RESULT[place.__name__] = {"tid": tid, "off": time.monotonic_ns() - began - (ran(tid) - before)}


LOCK = threading.Lock()
ENDS = os.pipe()
print(json.dumps({"pid": os.getpid()}), flush=True)
if sys.stdin.readline():
    END = time.monotonic_ns() + int(sys.argv[1]) * 10**9
    places = (wait_lock, wait_holding, wait_sleep, wait_select, wait_pipe, wait_writing)
    threads = [threading.Thread(target=run, args=(p,)) for p in places]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    print(json.dumps(RESULT), flush=True)
    sys.stdin.read()
