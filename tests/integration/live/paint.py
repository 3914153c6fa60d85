# SPDX-License-Identifier: Apache-2.0
"""Measures the time from an input to the frame that shows its effect."""

# The callbacks of a frame run before it is painted; a task that such a callback creates runs after the paint.
PREPARE = """window.measure = async (act, times) => {
    const took = [], pause = ms => new Promise(done => setTimeout(done, ms));
    for (let i = 0; i < times; i++) {
        await pause(130);
        const began = performance.now();
        await act(i, pause);
        await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
        took.push(performance.now() - began);
    }
    return took.sort((a, b) => a - b);
};
window.enter = (id, value, event) => {
    const e = document.getElementById(id);
    e.value = value;
    e.dispatchEvent(new Event(event));
};
window.press = (selector, i) => document.querySelectorAll(selector)[i].click();"""

ACTS = {
    "time": "i => enter('window', i % 2 ? '10' : '0', 'change')",
    "group": "i => enter('group', i % 2 ? 'process' : '', 'change')",
    "filter": "i => enter('process', i % 2 ? '' : 'name:service-3', 'change')",
    "type": "() => press('#legend button[data-type]', 0)",
    "view": "i => press(`[data-view=${i % 2 ? 'flame' : 'icicle'}]`, 0)",
    "sandwich": "i => press('#functions td.name button', i)",
    "zoom": """i => {
        const c = document.querySelector('#upper canvas'), r = c.getBoundingClientRect();
        c.dispatchEvent(new MouseEvent('click', {clientX: r.left + 40 + i, clientY: r.bottom - 30 - 18 * (i % 2)}));
    }""",
    "search": "i => enter('search', 'function_7' + i, 'input')",
}

# Types a key every 100 ms for five seconds, without waiting until the last one is shown.
TYPE = """new Promise(done => {
    const word = 'module_3.function_71', took = [], keys = 50;
    for (let i = 0; i < keys; i++)
        setTimeout(() => {
            const began = performance.now(), n = i % (2 * word.length);
            enter('search', word.slice(0, n < word.length ? n + 1 : 2 * word.length - n), 'input');
            requestAnimationFrame(() => setTimeout(() => {
                took.push(performance.now() - began);
                if (took.length === keys) done(took.sort((a, b) => a - b));
            }));
        }, i * 100);
})"""


def measure_page(browser, url, times=5):
    """{kind of input: median ms from input to paint, of TIMES}, and "worst", "typing", "typing_worst", "rows", "functions"."""
    browser.page(url + "/#window=0")
    browser.wait("window.kiln?.model.rowNode.length >= 50000 && kiln.shown?.total > 0", 180)
    browser.js(PREPARE)
    out = {"worst": 0}
    for name, act in ACTS.items():
        if name == "zoom":
            browser.js("(enter('process', '', 'change'), press('[data-view=flame]', 0))")
        took = browser.js(f"measure({act}, {times})")
        out[name] = round(took[len(took) // 2])
        out["worst"] = max(out["worst"], round(took[-1]))
    took = browser.js(TYPE)
    out["typing"], out["typing_worst"] = round(took[len(took) // 2]), round(took[-1])
    out["rows"], out["functions"] = browser.js("[kiln.model.rowNode.length, kiln.shown.table.length]")
    return out
