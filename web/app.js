// The page: state, controls, and what is computed when. The state is in the address after '#', so that
// a link shows the same.

import { Model, containerLabel } from "./model.js";
import { buildTree, buildSandwich, matchedWeight } from "./tree.js";
import { follow } from "./stream.js";
import { Flame, colourOf, labelOf, diffColour } from "./flame.js";
import { Table, percent } from "./table.js";
import { toSvg, save, profileQuery } from "./export.js";

const $ = (id) => document.getElementById(id);
const model = new Model();
const FILTERS = ["process", "thread", "namespace", "pod", "container"];
const TABLE_ROWS = 150, OPTIONS = 400, REDRAW_MS = 500;

const state = {
	view: "flame", window: "60", base: "", kind: "0", group: "process", search: "", chosen: "",
	process: "", thread: "", namespace: "", pod: "", container: "", hidden: "",
};
let token = "", paused = null, shown = null, sort = "self", failures = 0, timer = 0, groupsSeen = -1;

// ---- state and address

function readAddress() {
	const q = new URLSearchParams(location.hash.slice(1));
	if (q.has("token")) { token = q.get("token"); }
	for (const key of Object.keys(state)) if (q.has(key)) state[key] = q.get(key);
	writeAddress();
}
function writeAddress() {
	const q = new URLSearchParams();
	for (const [key, value] of Object.entries(state)) if (value && value !== defaults[key]) q.set(key, value);
	history.replaceState(null, "", q.toString() ? "#" + q : location.pathname);
}
const defaults = { ...state };

function filter() {
	return { kind: Number(state.kind), ...Object.fromEntries(FILTERS.map((k) => [k, state[k]])) };
}
function hidden() {
	return new Set(state.hidden.split(",").filter(Boolean).map((name) => model.types.indexOf(name)));
}
function set(changes) {
	Object.assign(state, changes);
	writeAddress();
	compute();
}

// ---- numbers

function duration(ns) {
	if (ns >= 60e9) return (ns / 60e9).toFixed(1) + " min";
	if (ns >= 1e9) return (ns / 1e9).toFixed(2) + " s";
	if (ns >= 1e6) return (ns / 1e6).toFixed(0) + " ms";
	return (ns / 1e3).toFixed(0) + " µs";
}

// ---- computing: from the model to what is shown

/** The weights of the times that are chosen; the base's are scaled to the same length of time. */
function weigh() {
	const end = paused ?? model.end(), seconds = Number(state.window), f = filter();
	const source = paused === null || seconds ? model : { counts: () => frozen };
	const now = source.counts(seconds, end);
	const weights = model.rowWeights(now.counts, f);
	let base = null;
	if (state.base !== "") {
		const span = Number(state.base);
		const before = model.counts(span, span ? end - seconds * 1000 : end);
		base = model.rowWeights(before.counts, f);
		const scale = before.ms > 0 ? now.ms / before.ms : 0;
		for (let i = 0; i < base.length; i++) base[i] *= scale;
	}
	return { weights, base, ms: now.ms };
}
let frozen = null;

function compute() {
	const started = performance.now(), hide = hidden();
	// Another view of the same needs no other tree.
	const of = JSON.stringify([paused ?? model.version, state.group, state.hidden, state.window, state.base, filter()]);
	if (shown?.of !== of) {
		const { weights, base, ms } = weigh();
		shown = { of, weights, base, ms, ...buildTree(model, weights, base, hide, state.group) };
		shown.total = shown.tree.total;
		shown.functions = new Map(shown.table.map((e) => [e.name, e]));
	}
	if (state.view === "sandwich" && !shown.functions.has(state.chosen) && shown.table.length)
		state.chosen = shown.table.reduce((a, b) => (b.self > a.self ? b : a)).name;
	if (state.view === "sandwich") Object.assign(shown, buildSandwich(model, shown.weights, hide, state.chosen));
	find();
	draw();
	document.body.dataset.computeMs = String(Math.round(performance.now() - started));
}

/** Frames that the search finds: a part of the name or of the file, without regard to case. */
function find() {
	const text = state.search.trim().toLowerCase();
	shown.matches = shown.hit = null;
	$("matched").textContent = "";
	if (!text) return;
	const hit = shown.hit = model.containing(text), { frameName, frameFile } = model;
	shown.matches = new Uint8Array(frameName.length);
	for (let f = 0; f < frameName.length; f++) shown.matches[f] = hit[frameName[f]] | hit[frameFile[f]];
	const weight = matchedWeight(model, shown.weights, shown.matches);
	$("matched").textContent = weight ? `found in ${percent(weight, shown.total)}` : "not found";
}

// ---- drawing

const drawn = {
	types: () => model.types,
	tip: showTip,
	choose: (node) => node.frame >= 0 && set({ view: "sandwich", chosen: model.strings[model.frameName[node.frame]] }),
	zoomed: (line) => state.view !== "sandwich" && showCrumbs(line),
};
const upper = new Flame($("upper").firstElementChild, drawn);
const lower = new Flame($("lower").firstElementChild, { ...drawn, zoomed: () => {} });

function draw() {
	const sandwich = state.view === "sandwich", diff = shown.base !== null && !sandwich;
	$("main").dataset.view = state.view;
	document.querySelectorAll("nav [data-view]").forEach((b) => b.setAttribute("aria-pressed", String(b.dataset.view === state.view)));
	for (const id of ["upper-title", "lower-title", "lower"]) $(id).hidden = !sandwich;
	for (const flame of [upper, lower]) { flame.matches = shown.matches; flame.diff = diff; }
	upper.icicle = state.view === "icicle";
	lower.icicle = true;
	if (sandwich) {
		$("upper-title").textContent = `Callers of ${state.chosen}`;
		$("lower-title").textContent = "Callees";
		upper.zoom = lower.zoom = [];
		$("crumbs").replaceChildren("Choose a function in the table, or press b on a frame of the flame graph.");
		upper.show(shown.callers);
		lower.show(shown.callees);
	} else {
		upper.show(shown.tree);
		showCrumbs(upper.line());
	}
	$("clear").hidden = ![...FILTERS, "hidden", "search"].some((key) => state[key]);
	drawSummary();
	drawTable();
	drawLegend(diff);
}

function drawSummary() {
	const cores = shown.ms > 0 && state.kind === "0" ? ` · ${(shown.total / (shown.ms * 1e6)).toFixed(2)} cores` : "";
	const what = state.kind === "0" ? "CPU time" : "time off CPU";
	$("summary").replaceChildren(text("strong", duration(shown.total)), ` ${what} in ${(shown.ms / 1000).toFixed(0)} s${cores} · ` +
		`${shown.table.length} functions` + (model.skipped ? ` · ${model.skipped} windows skipped` : ""));
	$("summary").dataset.ns = String(Math.round(shown.total));
	$("summary").dataset.rows = String(model.rowNode.length);
}

function text(tag, content, className) {
	const e = document.createElement(tag);
	e.textContent = content;
	if (className) e.className = className;
	return e;
}

const functions = new Table($("functions").querySelector("tbody"));
function drawTable() {
	const diff = shown.base !== null, { total, hit } = shown;
	document.querySelector("th.change").hidden = !diff;
	functions.show(shown.table, TABLE_ROWS, { types: model.types, total, diff, sort, hit });
	document.querySelectorAll("th button").forEach((b) => b.parentElement.setAttribute("aria-sort", b.dataset.sort === sort ? "descending" : "none"));
}

let legendKey = "", present = [], presentOf = 0;
function drawLegend(diff) {
	// Frame 0 is "[other]", which is always known and seldom seen.
	if (presentOf !== model.frameType.length) present = [...new Set(model.frameType.slice(1))].sort((a, b) => a - b);
	presentOf = model.frameType.length;
	const key = JSON.stringify([diff, present]), off = state.hidden.split(",");
	if (key !== legendKey) fillLegend(diff);
	legendKey = key;
	document.querySelectorAll("#legend button").forEach((b) => b.setAttribute("aria-pressed", String(!off.includes(b.dataset.type))));
}

function fillLegend(diff) {
	const items = diff ? [["less than before", diffColour(-0.06)], ["the same", diffColour(0)], ["more", diffColour(0.06)]] : [];
	const focus = document.activeElement?.dataset.type;
	$("legend").replaceChildren(...items.map(([label, colour]) => {
		const li = text("li", ""), mark = text("i", "");
		mark.style.cssText = `display:inline-block;background:${colour}`;
		li.append(mark, " " + label);
		return li;
	}), ...present.map((type) => {
		const name = model.types[type], li = text("li", ""), button = text("button", ""), mark = text("i", "");
		mark.style.background = colourOf(name);
		button.type = "button";
		button.dataset.type = name;
		button.append(mark, labelOf(name));
		li.append(button);
		return li;
	}));
	if (focus) $("legend").querySelector(`[data-type="${focus}"]`)?.focus();
}

function showTip(node, x, y) {
	const tip = $("tip");
	tip.hidden = !node;
	if (!node) return;
	const type = node.type >= 0 ? labelOf(model.types[node.type]) : "", file = node.frame >= 0 ? model.strings[model.frameFile[node.frame]] : "";
	const lines = [text("strong", node.name), text("div", [type, file].filter(Boolean).join(" · ")),
		text("div", `total ${duration(node.total)}, ${percent(node.total, shown.total)} · self ${percent(node.self, shown.total)}`)];
	if (shown.base && state.view !== "sandwich") lines.push(text("div", `before ${duration(node.base)}`));
	tip.replaceChildren(...lines);
	tip.style.left = Math.max(4, Math.min(x + 12, innerWidth - tip.offsetWidth - 8)) + "px";
	tip.style.top = (y + 20 + tip.offsetHeight > innerHeight ? y - tip.offsetHeight - 12 : y + 16) + "px";
}

function showCrumbs(line) {
	const node = line[line.length - 1];
	if (line.length < 2) { $("crumbs").replaceChildren("Press a frame to zoom into it."); return; }
	const back = text("button", "Zoom out"), both = text("button", "Callers and callees");
	back.type = both.type = "button";
	back.addEventListener("click", () => upper.zoomTo([]));
	both.addEventListener("click", () => drawn.choose(node));
	$("crumbs").replaceChildren(back, " ", ...(node.frame >= 0 ? [both, " "] : []), `${node.name} ${percent(node.total, shown.total)}`);
}

// ---- controls

function options(select, entries, all) {
	const value = state[select.id], list = [["", all], ...entries];
	if (value && !entries.some(([v]) => v === value)) list.push([value, value.replace(/^(pid|name):/, "")]);
	select.replaceChildren(...list.map(([v, label]) => { const o = text("option", label); o.value = v; return o; }));
	select.value = value;
}

/** What can be filtered by, when new groups came. */
function fillFilters() {
	if (groupsSeen === model.groups.length) return;
	groupsSeen = model.groups.length;
	const values = { thread: new Map(), namespace: new Map(), pod: new Map(), container: new Map() }, names = new Map(), pids = new Map();
	model.groups.forEach((g, i) => {
		if (!i) return;
		const name = model.strings[g.process];
		names.set(name, (names.get(name) || new Set()).add(g.pid));
		pids.set(g.pid, name);
		for (const key of Object.keys(values)) {
			const v = model.strings[g[key]];
			if (v) values[key].set(v, key === "container" ? containerLabel(model, g) : v);
		}
	});
	const sorted = (map) => [...map].sort((a, b) => (a[1] < b[1] ? -1 : 1)).slice(0, OPTIONS);
	const processes = [];
	for (const [name, set] of [...names].sort((a, b) => (a[0] < b[0] ? -1 : 1))) {
		processes.push(["name:" + name, set.size > 1 ? `${name} (all ${set.size})` : name]);
		if (set.size > 1) for (const pid of [...set].slice(0, 20)) processes.push(["pid:" + pid, `  ${name} ${pid}`]);
	}
	options($("process"), processes.slice(0, OPTIONS), "all");
	for (const key of Object.keys(values)) options($(key), sorted(values[key]), "all");
	document.querySelectorAll(".kube").forEach((e) => { e.hidden = !values.namespace.size; });
	document.querySelector(".box").hidden = !values.container.size;
	$("kinds").hidden = state.kind === "0" && !model.groups.some((g) => g.kind === 1);
}

function showControls() {
	for (const key of ["window", "base", "kind", "group", ...FILTERS]) if ($(key).options.length) $(key).value = state[key];
	$("search").value = state.search;
}

function pause() {
	paused = paused === null ? model.end() : null;
	frozen = paused === null ? null : model.counts(0);
	if (frozen) frozen.counts = frozen.counts.slice();
	$("pause").setAttribute("aria-pressed", String(paused !== null));
	$("pause").textContent = paused === null ? "Pause" : "Go on";
	compute();
}

async function download(format) {
	const stamp = new Date().toISOString().slice(0, 19).replace(/[:T]/g, "-");
	if (format === "svg") {
		const root = state.view === "sandwich" ? shown.callers : shown.tree;
		const svg = toSvg(root, model.types, `${model.host} · ${duration(shown.total)} in ${(shown.ms / 1000).toFixed(0)} s`, state.view === "icicle");
		return save(new Blob([svg], { type: "image/svg+xml" }), `kiln-${stamp}.svg`);
	}
	const headers = token ? { Authorization: "Bearer " + token } : {};
	const answer = await fetch("api/profile?" + profileQuery(format, state.window, filter()), { headers, cache: "no-store" });
	if (!answer.ok) return say((await answer.text()).trim(), true);
	const ending = { pprof: "pb.gz", folded: "folded", otlp: "otlp.pb" }[format];
	save(await answer.blob(), `kiln-${stamp}.${ending}`);
}

function theme(next) {
	document.documentElement.dataset.theme = next;
	try { localStorage.setItem("kiln-theme", next); } catch { /* private windows have none */ }
	if (shown) draw();
}

function bind() {
	for (const key of ["window", "base", "kind", "group", ...FILTERS])
		$(key).addEventListener("change", () => { upper.zoom = []; set({ [key]: $(key).value }); });
	$("controls").addEventListener("submit", (e) => e.preventDefault());
	$("clear").addEventListener("click", () => { set(Object.fromEntries([...FILTERS, "hidden", "search"].map((k) => [k, ""]))); showControls(); });
	let wait = 0, asked = 0;
	$("search").addEventListener("input", () => {
		state.search = $("search").value;
		// At most once for each picture, however quick the keys are; browsers limit how often an address may change.
		if (!asked) asked = requestAnimationFrame(() => { asked = 0; if (shown) { find(); draw(); } });
		clearTimeout(wait);
		wait = setTimeout(writeAddress, 250);
	});
	$("more").addEventListener("click", () => {
		const open = $("controls").classList.toggle("open");
		$("more").setAttribute("aria-expanded", String(open));
	});
	$("pause").addEventListener("click", pause);
	$("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
	$("help-open").addEventListener("click", () => $("help").showModal());
	document.querySelector("nav").addEventListener("click", (e) => {
		const { view, download: format } = e.target.dataset ?? {};
		if (view) { upper.zoom = []; upper.drawn = false; set({ view }); }
		if (format && shown) download(format).catch((error) => say(error.message, true));
	});
	$("legend").addEventListener("click", (e) => {
		const type = e.target.closest("button")?.dataset.type;
		if (!type) return;
		const off = new Set(state.hidden.split(",").filter(Boolean));
		if (!off.delete(type)) off.add(type);
		set({ hidden: [...off].join(",") });
	});
	$("functions").addEventListener("click", (e) => {
		const by = e.target.closest("[data-sort]")?.dataset.sort, name = e.target.closest("td")?.parentElement.dataset.name;
		if (by) { sort = by; drawTable(); }
		else if (name) set({ view: "sandwich", chosen: name });
	});
	$("login").addEventListener("close", () => { token = $("token").value; $("token").value = ""; connect(); });
	document.addEventListener("keydown", keys);
	document.addEventListener("scroll", () => showTip(null), { passive: true, capture: true });
}

function keys(e) {
	if (e.ctrlKey || e.metaKey || e.altKey || $("help").open || $("login").open) return;
	if (e.key === "Escape") {
		if (document.activeElement === $("search") && $("search").value) { $("search").value = ""; $("search").dispatchEvent(new Event("input")); }
		else if (state.view === "sandwich") set({ view: "flame" });
		else upper.zoomTo([]);
		$("upper").firstElementChild.focus();
		return;
	}
	if (/^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName)) return;
	const windows = { 1: "10", 2: "60", 3: "300", 4: "0" }, views = { f: "flame", i: "icicle", s: "sandwich", l: "table" };
	if (e.key === "/") $("search").focus();
	else if (e.key === "p") pause();
	else if (e.key === "t") $("theme").click();
	else if (e.key === "?") $("help").showModal();
	else if (windows[e.key]) { set({ window: windows[e.key] }); showControls(); }
	else if (views[e.key]) { upper.zoom = []; upper.drawn = false; set({ view: views[e.key] }); }
	else return;
	e.preventDefault();
}

// ---- the stream

function say(message, bad) {
	$("status").textContent = message;
	$("status").classList.toggle("bad", Boolean(bad));
}

function changed() {
	failures = 0;
	if (timer) return;
	timer = setTimeout(() => {
		timer = 0;
		$("host").textContent = model.host;
		fillFilters();
		if (paused === null || !shown) compute();
	}, shown ? REDRAW_MS : 0);
}

async function connect() {
	try {
		await follow(model, () => token, undefined, (what) => {
			if (what === "token") { say("a token is needed", true); $("login").showModal(); }
			else { groupsSeen = -1; say("live"); }
		}, changed);
	} catch (error) {
		failures++;
		say(`no connection: ${error.message}; trying again`, true);
		setTimeout(connect, Math.min(1000 * failures, 10000));
	}
}

let wanted = null;
try { wanted = localStorage.getItem("kiln-theme"); } catch { /* private windows have none */ }
document.documentElement.dataset.theme = wanted || (matchMedia("(prefers-color-scheme: light)").matches ? "light" : "dark");
readAddress();
bind();
showControls();
connect();
window.kiln = { model, state, get shown() { return shown; } };
