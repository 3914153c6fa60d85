# SPDX-License-Identifier: Apache-2.0
"""The live page: what clients cost the agent, and how it copes with 50,000 distinct stacks."""
import os
import sys
import time

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", ".."))
sys.path[:0] = [os.path.join(ROOT, "tests", "integration", "live")]


def bench_clients(table, seconds):
    from running import Live
    from kiln import workload
    from stream import Watchers

    with workload.Workload("threads", seconds=600), Live("/dev/null") as live:
        time.sleep(10)  # until the unwind tables of the running programs are made
        cpu, at = live.cpu_seconds(), time.monotonic()
        time.sleep(seconds)
        alone, rss = (live.cpu_seconds() - cpu) / (time.monotonic() - at), live.rss_kib()
        with Watchers(live.port, 20) as watchers:
            watchers.read_for(2)
            cpu, at = live.cpu_seconds(), time.monotonic()
            watchers.read_for(seconds)
            share = ((live.cpu_seconds() - cpu) / (time.monotonic() - at) - alone) / 20
            grown = live.rss_kib() - rss
    table.add(f"live page: agent's CPU for each of 20 clients, {seconds} s", share * 100, "%", 1)
    table.add("  agent's memory for all of them", grown / 1024, "MiB", 32)


def bench_page(table, seconds):
    from browser import Browser
    from paint import measure_page
    from stream import Feed, Watchers

    browser = Browser()
    try:
        with Feed(50000, 200, 300) as feed:
            took = measure_page(browser, feed.url)
            with Watchers(feed.port, 1) as watcher:
                watcher.read_for(3)
                traffic = watcher.read_for(seconds)[0] / seconds / 1024
    finally:
        browser.close()
    for name in ("time", "group", "filter", "type", "view", "sandwich", "zoom", "search"):
        table.add(f"live page, {took['rows']} stacks: from input to paint, {name}", took[name], "ms", 200)
    table.add("  the longest of 40", took["worst"], "ms")
    table.add("  typing for 5 s, a key every 100 ms: from key to paint", took["typing"], "ms", 200)
    table.add("  the longest of 50", took["typing_worst"], "ms")
    table.add("  updates to one client", traffic, "KiB/s", 200)


def bench(table, quick):
    bench_clients(table, 10 if quick else 60)
    bench_page(table, 10 if quick else 30)
