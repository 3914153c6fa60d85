#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pictures of the README and the documents: the page over native, Go, Python and Node programs that the agent profiles.

usage: screenshot.py FILE.png [SECONDS [dark|light [ADDRESS]]]

ADDRESS: what the page shows, as behind the # of its address ("window=60")."""
import contextlib
import os
import shutil
import subprocess
import sys
import time

from browser import Browser
from running import Live
from kiln import agent, workload

RUNTIMES = os.path.join(agent.ROOT, "tests", "integration", "runtimes")
OTHERS = [["/usr/bin/python3", f"{RUNTIMES}/python_work.py"], [shutil.which("node"), f"{RUNTIMES}/v8_work.js", "900"]]


def main():
    path, seconds, look, address = (sys.argv[1:] + ["", "30", "dark", "window=60"][len(sys.argv) - 1:])[:4]
    seconds = int(seconds)
    with contextlib.ExitStack() as stack:
        pids = [stack.enter_context(workload.Workload(name, *arguments, seconds=seconds + 120)).pid
                for name, arguments in (("qsort", (14, 6)), ("go", ())) if not workload.missing(name)]
        for command in OTHERS:
            p = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            stack.callback(p.wait)
            stack.callback(p.kill)
            pids.append(p.pid)
        live = stack.enter_context(Live("/dev/null", arguments=("--off-cpu", "--pid", *pids)))
        time.sleep(seconds)
        browser = Browser()
        stack.callback(browser.close)
        browser.page(live.url + "/#" + address, 1280, 800, look == "dark")
        browser.wait("window.kiln?.shown?.total > 0")
        browser.js("new Promise(done => setTimeout(done, 1500))")
        browser.screenshot(os.path.abspath(path))
        types = browser.js("[...new Set(kiln.shown.table.map(e => kiln.model.types[e.type]))]")
        print(f"{path}: {os.path.getsize(path) / 1024:.0f} KiB, frames: {', '.join(sorted(types))}")


main()
