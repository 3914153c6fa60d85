# SPDX-License-Identifier: Apache-2.0
"""Labels and traces on the page: two threads work alternately in work_A() for tenant A and in work_B() for tenant B."""
import json
import os
import subprocess

import pytest

from running import Live
from test_page import READY, choose, shot, shown_ns

PROGRAM = os.path.join(os.environ["KILN_LABEL_PROGRAMS"], "labels-exec")
NAMES = "kiln.shown.table.map(e => e.name)"


@pytest.fixture(scope="module")
def program():
    with subprocess.Popen([PROGRAM, "steady", "2"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as p:
        assert p.stdout.readline() == "ready\n"
        yield p
        p.kill()


@pytest.fixture(scope="module")
def page(browser, program, tmp_path_factory):
    """The page of an agent that profiles this program only. The label "secret" is not among the allowed labels."""
    with Live(tmp_path_factory.mktemp("requests") / "stacks.folded", arguments=("--pid", str(program.pid)),
              receiver=", labels: [tenant, http.route]") as a:
        browser.page(a.url + f"/#process=pid:{program.pid}")
        browser.wait(READY)
        browser.wait("kiln.model.windows.length > 3 && [...document.getElementById('group').options].some(o => o.value === 'label:tenant')")
        yield a


def test_grouped_by_a_label(browser, page):
    choose(browser, "group", "label:tenant")
    browser.wait("kiln.shown.tree.child('gtenant=A') && kiln.shown.tree.child('gtenant=B')")
    of = json.loads(browser.js("""JSON.stringify(Object.fromEntries(['A', 'B'].map(t => {
        const names = new Set(), walk = (n) => { names.add(n.name); for (const [, c] of n.wide(0)) walk(c); };
        walk(kiln.shown.tree.child('gtenant=' + t));
        return [t, [...names].filter(n => n.startsWith('work_'))];
    })))"""))
    assert of == {"A": ["work_A"], "B": ["work_B"]}
    assert "group=label%3Atenant" in browser.js("location.hash")
    assert browser.js("kiln.model.strings.includes('/pay/{id}')")
    assert not browser.js("kiln.model.strings.includes('secret') || kiln.model.strings.includes('hunter2')")
    shot(browser, "by-label")
    choose(browser, "group", "name")


def test_filtered_by_a_label(browser, page):
    whole = shown_ns(browser)
    assert browser.js("!document.querySelector('.labelled').hidden")
    choose(browser, "label", "tenant=A")
    browser.wait(f"{NAMES}.includes('work_A') && !{NAMES}.includes('work_B')")
    assert 0 < shown_ns(browser) < whole
    folded = browser.js("fetch('api/profile?format=folded&label=tenant%3DA').then(r => r.text())")
    assert ";work_A" in folded and ";work_B" not in folded
    choose(browser, "label", "")


def test_a_trace_is_found(browser, page):
    """Filtering by a trace id gives the same on the page, in the agent's download and in the sum of the windows."""
    ids = json.loads(browser.js("JSON.stringify([...new Set(kiln.model.windows.flatMap(w => w.traces.ids))])"))
    assert len(ids) == 4  # two threads with two contexts each
    assert sorted(browser.js("[...document.getElementById('traces').children].map(o => o.value)")) == sorted(ids)
    browser.js("document.getElementById('pause').click()")
    found = set()
    for i in ids:
        typed = i[:8]
        browser.js(f"(() => {{ const e = document.getElementById('trace'); e.value = {json.dumps(typed)}; e.dispatchEvent(new Event('input')); }})()")
        names = [n for n in browser.js(NAMES) if n.startswith("work_")]
        assert len(names) == 1, (i, names)
        found.add(names[0])
        by_hand = browser.js(f"""kiln.held.windows.filter(w => w.start + w.duration / 2 >= kiln.held.end() - 60000).reduce((sum, w) =>
            w.traces.ids.reduce((s, id, k) => s + (id.startsWith({json.dumps(typed)}) ? w.traces.values[k] : 0), sum), 0)
            * kiln.held.groups.find(g => g.period && !g.kind).period""")
        assert shown_ns(browser) == by_hand > 0
        assert f"trace={typed}" in browser.js("new Promise(done => setTimeout(() => done(location.hash), 300))")
        folded = browser.js(f"fetch('api/profile?format=folded&trace={i}').then(r => r.text())")
        assert f";{names[0]}" in folded and sum(";work_" in line for line in folded.splitlines()) == sum(f";{names[0]}" in line for line in folded.splitlines())
    assert found == {"work_A", "work_B"}
    shot(browser, "trace")
    browser.js("(() => { const e = document.getElementById('trace'); e.value = 'not hex'; e.dispatchEvent(new Event('input')); })()")
    assert browser.js("document.getElementById('trace').getAttribute('aria-invalid')") == "true"
    assert browser.js("fetch('api/profile?format=folded&trace=XYZ').then(r => r.status)") == 400
    assert browser.js("fetch('api/profile?format=folded&label=tenant').then(r => r.status)") == 400
    browser.js("document.getElementById('clear').click()")
    assert browser.js("document.getElementById('trace').value") == ""
    assert browser.complaints() == ["Failed to load resource: the server responded with a status of 400 (Bad Request)"] * 2
