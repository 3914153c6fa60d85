# SPDX-License-Identifier: Apache-2.0
"""Chromium on the page of an agent that profiles real workloads."""
import json
import os
import re
import subprocess
import time
import xml.etree.ElementTree as ET

import pytest

from kiln import agent as kiln_agent
from paint import measure_page
from stream import Feed, Watchers

SHOTS = os.environ.get("KILN_SCREENSHOTS", os.path.join(kiln_agent.ROOT, "build", "screenshots"))
# The page has data, has drawn it, and has filled the lists of filters (in this order).
READY = "window.kiln?.shown?.total > 0 && document.getElementById('summary').dataset.ns > 0 && document.getElementById('process').options.length > 1"


def shot(browser, name):
    browser.js("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    data = browser.screenshot(os.path.join(SHOTS, name + ".png"))
    assert len(data) > 20000, f"{name} shows nothing"


def of_pid(pid):
    """A JavaScript expression: the number of CPU samples of process PID since the start, from the page's tables."""
    return f"""(() => {{
        const m = kiln.model; let n = 0;
        for (let r = 0; r < m.rowNode.length; r++) {{
            const g = m.groups[m.rowGroup[r]];
            if (g.pid === {pid} && g.kind === 0) n += m.totals[r];
        }}
        return n;
    }})()"""


def choose(browser, control, value):
    browser.js(f"""(() => {{ const e = document.getElementById({json.dumps(control)}); e.value = {json.dumps(value)};
        e.dispatchEvent(new Event('change')); }})()""")


def shown_ns(browser):
    return int(browser.js("document.getElementById('summary').dataset.ns"))


def shown_ns_of_each(browser, control, values):
    """What is shown for each of the VALUES of CONTROL; no window comes in between."""
    return browser.js(f"""(() => {{ const e = document.getElementById({json.dumps(control)});
        return {json.dumps(values)}.map(v => {{ e.value = v; e.dispatchEvent(new Event('change'));
            return Number(document.getElementById('summary').dataset.ns); }}); }})()""")


@pytest.mark.alone
def test_the_hot_function_is_on_screen_soon(browser, live, busy):
    browser.page(live.url + f"/#process=pid:{busy.pid}")
    browser.wait("[...document.querySelectorAll('#functions td.name')].slice(0, 12).some(e => /^leaf_\\d$/.test(e.textContent))")
    # The time printed below includes the start of the browser, the agent's first window and the page.
    browser.wait("kiln.shown.tree.children.size === 1")
    assert browser.js("getComputedStyle(document.getElementById('upper').firstElementChild).display") == "block"
    took = time.monotonic() - live.listening
    print(f"hot function on screen {took:.1f} s after the agent began")
    assert browser.complaints() == []
    pixels = browser.js("""(() => { const c = document.querySelector('#upper canvas'), g = c.getContext('2d');
        const d = g.getImageData(0, 0, c.width, c.height).data; const seen = new Set();
        for (let i = 0; i < d.length; i += 400) if (d[i + 3]) seen.add(d[i] + ',' + d[i + 1] + ',' + d[i + 2]);
        return seen.size; })()""")
    assert pixels > 3, "the canvas has no frames"


def test_search_finds_it_and_tells_its_share(browser, live, busy):
    browser.page(live.url + "/#window=0&process=pid:%d" % busy.pid)
    browser.wait(READY)
    browser.js("(() => { const e = document.getElementById('search'); e.value = 'LEAF_'; e.dispatchEvent(new Event('input')); })()")
    text, _ = browser.wait("document.getElementById('matched').textContent")
    share = float(re.fullmatch(r"found in ([\d.]+)%", text).group(1))
    assert 50 < share <= 100, text
    assert browser.js("document.querySelector('#functions tbody tr').className") == "match"
    browser.js("(() => { const e = document.getElementById('search'); e.value = 'no such thing'; e.dispatchEvent(new Event('input')); })()")
    browser.wait("document.getElementById('matched').textContent === 'not found'")
    browser.js("document.getElementById('search').value = 'leaf_3'; document.getElementById('search').dispatchEvent(new Event('input'))")
    browser.wait("location.hash.includes('search=leaf_3')")


@pytest.mark.alone
def test_filters_change_the_numbers_as_the_agent_counts(browser, live, busy):
    browser.page(live.url + "/#window=0")
    browser.wait(READY)
    whole, one = shown_ns_of_each(browser, "process", ["", "name:wl-threads"])
    assert 0 < one < whole
    # Compare the page with the agent's answer; both have to be read between two windows.
    for _ in range(100):
        before = browser.js(of_pid(busy.pid))
        folded = browser.js(f"fetch('api/profile?format=folded&pid={busy.pid}').then(r => r.text())")
        if browser.js(of_pid(busy.pid)) == before:
            break
    counted = sum(int(line.rsplit(" ", 1)[1]) for line in folded.splitlines())
    assert counted == before > 0
    assert all(line.startswith("wl-threads;") for line in folded.splitlines())
    # Filter by a thread, then hide a frame type.
    threads = browser.js("[...document.getElementById('thread').options].map(o => o.value)")
    assert "wl-threads" in threads
    choose(browser, "process", "")
    thread, whole = shown_ns_of_each(browser, "thread", ["wl-threads", ""])
    assert 0 < thread <= whole
    assert browser.js("kiln.shown.table.some(e => kiln.model.types[e.type] === 'kernel')")
    browser.js("document.querySelector('#legend [data-type=kernel]').click()")
    assert not browser.js("kiln.shown.table.some(e => kiln.model.types[e.type] === 'kernel')")
    assert browser.complaints() == []


def test_windows_pause_and_comparison(browser, live):
    browser.page(live.url + "/#window=0")
    browser.wait(READY)
    browser.wait("kiln.model.windows.length > 12")
    whole = shown_ns(browser)
    browser.key("1", "Digit1", 49, "1")
    browser.wait("kiln.state.window === '10' && document.getElementById('window').value === '10'")
    ten = shown_ns(browser)
    assert 0 < ten < whole
    assert 5000 <= browser.js("kiln.shown.ms") <= 16000
    browser.key("p", "KeyP", 80, "p")
    paused = shown_ns(browser)
    seq = browser.js("kiln.model.windows.at(-1).seq")
    browser.wait(f"kiln.model.windows.at(-1).seq > {seq} + 1")
    assert shown_ns(browser) == paused
    browser.key("p", "KeyP", 80, "p")
    browser.wait(f"Number(document.getElementById('summary').dataset.ns) !== {paused}")
    choose(browser, "base", "0")
    assert browser.js("!document.querySelector('th.change').hidden && kiln.shown.tree.base > 0")
    # The base is scaled to the same length of time: with a steady load both are about equal.
    assert 0.1 < browser.js("kiln.shown.tree.base / kiln.shown.tree.total") < 10
    shot(browser, "difference")


def test_sandwich_zoom_and_keys(browser, live, busy):
    browser.page(live.url + "/#window=0&process=pid:%d" % busy.pid)
    browser.wait(READY)
    browser.js("[...document.querySelectorAll('#functions td.name button')].find(b => /^leaf_7$/.test(b.textContent)).click()")
    browser.wait("kiln.state.view === 'sandwich'")
    tree = browser.js("(() => { const names = n => [n.name, ...[...(n.children?.values() || [])].flatMap(names)]; return names(kiln.shown.callers); })()")
    assert tree[0] == "leaf_7" and "middle_7" in tree and "leaf_6" not in tree
    shot(browser, "sandwich")
    browser.key("Escape", "Escape", 27)
    browser.wait("kiln.state.view === 'flame'")
    browser.js("document.querySelector('#upper canvas').focus()")
    for _ in range(2):
        browser.key("ArrowUp", "ArrowUp", 38)
    browser.key("Enter", "Enter", 13)
    assert browser.js("document.activeElement.tagName") == "CANVAS"
    browser.wait("!!document.querySelector('#crumbs button')")
    browser.key("Escape", "Escape", 27)
    browser.wait("!document.querySelector('#crumbs button')")
    assert browser.complaints() == []


@pytest.mark.parametrize("format, ending", [("pprof", ".pb.gz"), ("folded", ".folded"), ("otlp", ".otlp.pb"), ("svg", ".svg")])
def test_downloads(browser, live, busy, format, ending):
    browser.page(live.url + "/#window=0&process=pid:%d" % busy.pid)
    browser.wait("window.kiln?.shown?.functions.has('leaf_7')")
    browser.js(f"document.querySelector('[data-download={format}]').click()")
    path = browser.downloaded(ending)
    time.sleep(0.2)
    with open(path, "rb") as f:
        data = f.read()
    if format == "pprof":
        top = subprocess.run(["go", "tool", "pprof", "-top", path], capture_output=True, text=True, timeout=180)
        assert top.returncode == 0 and "leaf_7" in top.stdout, top.stderr
    elif format == "folded":
        assert re.search(rb"^wl-threads;.*;leaf_7 \d+$", data, re.M)
    elif format == "otlp":
        from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2
        request = profiles_service_pb2.ExportProfilesServiceRequest.FromString(data)
        assert "leaf_7" in request.dictionary.string_table
    else:
        titles = [e.text for e in ET.fromstring(data).iter("{http://www.w3.org/2000/svg}title")]
        assert any(t.startswith("leaf_7 ") for t in titles)


def test_go_tool_pprof_takes_the_machine_and_one_process(live, busy):
    for query, has_others in (("seconds=5", True), (f"seconds=5&pid={busy.pid}", False)):
        raw = subprocess.run(["go", "tool", "pprof", "-traces", f"{live.url}/debug/pprof/profile?{query}"],
                             capture_output=True, text=True, timeout=180)
        assert raw.returncode == 0, raw.stderr
        assert "leaf_" in raw.stdout
        pids = set(re.findall(r"\bpid: +(\d+)", raw.stdout))
        assert str(busy.pid) in pids and (len(pids) > 1) == has_others


def test_looks(browser, live):
    """The legend is visible without scrolling, and no control is cut off, on screens of several sizes."""
    for name, width, height, dark, phone in (("dark", 1280, 800, True, False), ("light", 1280, 800, False, False),
                                             ("phone", 390, 844, True, True)):
        browser.page(live.url + "/", width, height, dark, phone)
        browser.wait(READY)
        assert browser.js(f"""[...document.querySelectorAll('button, input, select, canvas')]
            .filter(e => e.getBoundingClientRect().right > {width}).map(e => e.outerHTML)""") == [], f"{name}: cut off"
        assert browser.js("document.documentElement.dataset.theme") == ("dark" if dark else "light")
        # A flame graph that is higher than its box is scrolled to its bottom, where the root is.
        browser.wait("(b => b.scrollTop + b.clientHeight >= b.scrollHeight - 4)(document.getElementById('upper'))")
        assert browser.js(f"document.getElementById('legend').getBoundingClientRect().bottom < {height}"), name
        shot(browser, name)
        # Every control has an accessible name.
        assert browser.js("""[...document.querySelectorAll('button, input, select, a')].filter(e => !(e.textContent.trim() ||
            e.labels?.length || e.getAttribute('aria-label'))).length""") == 0
        assert browser.complaints() == []


@pytest.mark.alone
def test_fifty_thousand_stacks_stay_quick(browser):
    """The agent's server with synthetic samples, since one machine seldom has so many stacks."""
    with Feed(50000, 200, 300) as feed:
        took = measure_page(browser, feed.url, times=2)
        with Watchers(feed.port, 1) as watcher:
            watcher.read_for(3)  # the stream begins with the totals and the history
            traffic = watcher.read_for(10)[0] / 10 / 1024
    print("50,000 stacks, ms from input to paint:", took, f"updates {traffic:.0f} KiB/s")
    assert took["rows"] >= 50000 and took["functions"] > 500
    # The times are printed but not checked: they depend on the machine's load more than on the page.
    assert 0 < traffic <= 200
    assert browser.complaints() == []


def test_svg_by_http_is_as_the_page_draws_it(browser, live, busy):
    browser.page(live.url + f"/#window=0&process=pid:{busy.pid}")
    browser.wait(READY)
    svg = browser.js(f"fetch('api/profile?format=svg&pid={busy.pid}').then(r => r.text())")
    root = ET.fromstring(svg)
    name = "{http://www.w3.org/2000/svg}"
    titles = [e.text for e in root.iter(name + "title")]
    assert titles[0] == "all 100.00%" and titles[1] == f"wl-threads ({busy.pid}) 100.00%"
    # The leaf of a truncated stack is a separate frame, of nearly no width.
    shares = [float(m.group(1)) for m in (re.match(r"leaf_\d ([\d.]+)%$", t) for t in titles) if m]
    assert len([s for s in shares if s > 2]) == 8
    # The page and the agent have their own tables of colours, which must agree.
    ours = browser.js("import('/flame.js').then(m => kiln.model.types.map(t => [m.colourOf(t), m.inkOn(m.colourOf(t))]))")
    with open(os.path.join(kiln_agent.ROOT, "agent", "live", "svg.c"), encoding="utf-8") as f:
        inks = {"BLACK": "#000000", "WHITE": "#ffffff"}
        rows = re.findall(r'\[(\w+)\] = \{"(#[0-9a-f]{6})", (\w+)\}', f.read())
    theirs = {name: [fill, inks[ink]] for name, fill, ink in rows}
    names = "NATIVE KERNEL GO RUST CPYTHON V8JS JVM RUBY PHP PERL DOTNET BEAM LUAJIT ABORT".split()
    assert ours == [theirs["FRAME_" + n] for n in names]


def test_nothing_serious_for_those_who_cannot_see_or_point(browser, live):
    script = os.path.join(os.path.dirname(__file__), "axe.sh")
    found = subprocess.run([script], capture_output=True, text=True, timeout=150)
    if found.returncode:
        pytest.skip(f"axe-core: {found.stderr.strip().splitlines()[-1]}")
    with open(found.stdout.strip(), encoding="utf-8") as f:
        axe = f.read()
    for view, dark in (("flame", True), ("sandwich", False)):
        browser.page(live.url + f"/#view={view}", dark=dark)
        browser.wait(READY)
        browser.js(axe + ";0")
        result = browser.js("axe.run(document, {resultTypes: ['violations']})")
        bad = [(v["impact"], v["id"], v["nodes"][0]["html"][:200]) for v in result["violations"]]
        print(f"axe: {view}, {'dark' if dark else 'light'}: {len(result['passes'])} rules pass, {len(bad)} do not")
        assert [v for v in bad if v[0] in ("serious", "critical")] == [], f"{view} {dark}"
    # The rules hold for the help dialog, too.
    browser.js("document.getElementById('help').showModal()")
    result = browser.js("axe.run(document.getElementById('help'), {resultTypes: ['violations']})")
    assert [v for v in result["violations"] if v["impact"] in ("serious", "critical")] == []
