// The page: its controls, and when it computes and draws. The state of the view is in the address (address.js).

import { DEFAULTS, parse, write, join, split, times } from "./address.js";
import { Model, PROBE } from "./model.js";
import { finish, focusOn, matchedWeight, sandwichSteps, treeSteps } from "./tree.js";
import { follow } from "./stream.js";
import { Flame, colourOf, labelOf, diffColour } from "./flame.js";
import { Table, percent } from "./table.js";
import { Timeline } from "./timeline.js";
import { choices, fill, traces } from "./filters.js";
import { openMenu, copy } from "./menu.js";
import { toSvg, save, profileQuery } from "./export.js";
import { toFolded, toPprof, gzip } from "./keep.js";

const $ = (id) => document.getElementById(id);
const model = new Model();
const FILTERS = ["process", "thread", "namespace", "pod", "container", "label"], NARROWED = [...FILTERS, "trace", "hidden", "search", "focus", "drop"];
const TABLE_ROWS = 150, REDRAW_MS = 500, TASK_MS = 8, FILTERS_MS = 5000, HOLD_MS = 1500, LATE_MS = 3000;

const state = { ...DEFAULTS };
let token = "", held = null, shown = null, failures = 0, timer = 0, building = null, rows = TABLE_ROWS, filtersAt = 0, heardAt = 0, firstAt = 0;

/** The model that is shown: the stream's, or its snapshot from when the page was paused. */
function view() { return held ?? model; }

function filter() {
	return { kind: state.kind.split(":")[0], probe: probeOf(state.kind), ...Object.fromEntries([...FILTERS, "trace"].map((k) => [k, state[k]])) };
}
function hidden() {
	const types = new Set(state.hidden.split(",").filter(Boolean).map((name) => view().types.indexOf(name)));
	return { types, names: new Set(split(state.drop)), recursion: Boolean(state.recursion) };
}
function set(changes) {
	Object.assign(state, changes);
	write(state, true);
	showControls();
	compute();
}

// ---- numbers

function duration(ns) {
	if (ns >= 60e9) return (ns / 60e9).toFixed(1) + " min";
	if (ns >= 1e9) return (ns / 1e9).toFixed(2) + " s";
	if (ns >= 1e6) return (ns / 1e6).toFixed(0) + " ms";
	return (ns / 1e3).toFixed(0) + " µs";
}
/** The probe's name in a kind of the address, "probe:NAME"; "" for other kinds. */
const probeOf = (kind) => kind.startsWith("probe:") ? kind.slice(6) : "";
/** N of the chosen kind as text: a time, or a number of hits of a probe. */
function amount(n) { return probeOf(state.kind) ? `${Math.round(n).toLocaleString()} hits` : duration(n); }
const seconds = (ms) => (ms / 1000).toFixed(ms < 9500 ? 1 : 0) + " s";

// ---- computing: from the model to what is shown

/** Whether there is time before the shown time. False when everything since the start is shown. */
const hasTimeBefore = () => state.window !== "0" || state.range !== "";

/** The weights of the chosen time and of its base; those of the base are scaled to the length of the chosen time. */
function weigh(from) {
	const f = filter(), range = times(state.range), baseRange = times(state.baseRange);
	const end = range ? range[1] : from.end(), length = range ? (range[1] - range[0]) / 1000 : Number(state.window);
	const counts = (span, to) => (state.trace ? from.countsOfTrace(state.trace, span, to) : from.counts(span, to));
	const now = counts(length, end), weights = from.rowWeights(now.counts, f);
	let base = null, before = { ms: 0 };
	if (baseRange || (state.base !== "" && (hasTimeBefore() || state.base === "0"))) {
		const span = baseRange ? (baseRange[1] - baseRange[0]) / 1000 : Number(state.base);
		before = counts(span, baseRange ? baseRange[1] : span ? end - length * 1000 : end);
	}
	if (before.ms > 0) {
		base = from.rowWeights(before.counts, f);
		for (let i = 0; i < base.length; i++) base[i] *= now.ms / before.ms;
	}
	if (state.focus) for (const list of base ? [weights, base] : [weights]) focusOn(from, list, state.focus);
	return { weights, base, ms: now.ms, baseMs: before.ms, end, from };
}

/** Computes and draws at once, after an action of the user. An unfinished update for new windows is dropped. */
function compute() {
	building = null;
	finish(computeSteps());
}

function* computeSteps() {
	yield* buildSteps();
	yield* paintSteps();
}

/**
 * Computes and draws after new windows, in short tasks between which the browser can draw. Calls DONE at the end, also
 * when compute() has dropped the update.
 */
function computeBetweenFrames(done) {
	const steps = building = computeSteps();
	(function go() {
		if (building !== steps) { done(); return; }
		const until = performance.now() + TASK_MS;
		let step;
		do step = steps.next(); while (!step.done && performance.now() < until);
		if (!step.done) { setTimeout(go); return; }
		building = null;
		done();
	})();
}

/** Computes the tree and the table, unless those that are shown were made from the same data and settings. */
function* buildSteps() {
	const hide = hidden(), from = held ?? model.ofThisConnection();
	// Another view of the same data needs no other tree.
	const { group, hidden: types, drop, focus, recursion, window: last, range, base, baseRange } = state;
	const of = JSON.stringify([Boolean(held), from.version, group, types, drop, focus, recursion, last, range, base, baseRange, filter()]);
	let next = shown;
	if (shown?.of !== of) {
		const weighed = weigh(from);
		next = { of, hide, ...weighed, ...(yield* treeSteps(from, weighed.weights, weighed.base, hide, group)) };
		next.total = next.tree.total;
		next.functions = new Map(next.table.map((e) => [e.name, e]));
	}
	if (state.view === "sandwich" && !state.chosen && next.table.length)
		state.chosen = next.table.reduce((a, b) => (b.self > a.self ? b : a)).name;
	if (state.view === "sandwich") next = { ...next, ...(yield* sandwichSteps(from, next.weights, hide, state.chosen)) };
	shown = next;
}

function paint() { finish(paintSteps()); }

function* paintSteps() {
	find();
	yield;
	drawGraphs();
	if (missed && upper.hits().length + lower.hits().length) { missed = ""; tellFound(); }
	yield;
	$("clear").hidden = !NARROWED.some((key) => state[key]);
	timeline.show(shown.from, filter(), times(state.range), times(state.baseRange));
	drawChips();
	drawSummary();
	yield;
	drawTable();
	yield;
	drawLegend();
}

/** Marks the frames that the search finds by name or file, ignoring case: by a part of it or by a regular expression. */
function find() {
	let text = state.search.trim().toLowerCase();
	shown.matches = shown.hit = null;
	for (const id of ["previous", "next"]) $(id).hidden = !text;
	if (!text) return tellFound("");
	try { if (state.regex) text = new RegExp(state.search.trim(), "i"); }
	catch { return tellFound("not a regular expression"); }
	const { frameName, frameFile } = shown.from, hit = shown.hit = shown.from.containing(text);
	shown.matches = new Uint8Array(frameName.length);
	for (let f = 0; f < frameName.length; f++) shown.matches[f] = hit[frameName[f]] | hit[frameFile[f]];
	const weight = matchedWeight(shown.from, shown.weights, shown.matches);
	tellFound(weight ? `found in ${percent(weight, shown.total)}` : "not found");
}

/** MISSED: the searchKey() for which "next match" found nothing, or "". */
let missed = "", found = "";
const searchKey = () => JSON.stringify([state.search, state.regex, state.view, state.chosen, upper.zoom, lower.zoom]);
function tellFound(now = found) {
	found = now;
	const where = missed === searchKey() && found.startsWith("found") ? ` · no match in this ${upper.zoom.length || lower.zoom.length ? "zoom" : "graph"}` : "";
	if ($("matched").textContent !== found + where) $("matched").textContent = found + where;
}

// ---- drawing

const nameOf = (node) => shown.from.nameOf(node.frame);
const drawn = {
	missed: () => { missed = searchKey(); tellFound(); },
	types: () => view().types,
	tip: showTip,
	choose: (node) => node.frame >= 0 && set({ view: "sandwich", chosen: nameOf(node) }),
	said: (node, depth) => {
		$("said").textContent = `${node.name}, ${percent(node.total, shown.total)}, itself ${percent(node.self, shown.total)}, level ${depth}`;
	},
};
const upper = new Flame($("upper").firstElementChild, {
	...drawn,
	menu: (node, keys, x, y) => menuOf(upper, node, keys, x, y),
	zoomed: (line) => {
		tellFound();
		if (state.view === "sandwich") return;
		state.zoom = join(line.slice(1).map((node) => node.name));
		zoomed = zoomKey(false);
		write(state, true);
		showCrumbs(line);
	},
});
const lower = new Flame($("lower").firstElementChild, { ...drawn, menu: (node, keys, x, y) => menuOf(lower, node, keys, x, y), zoomed: () => tellFound() });
const timeline = new Timeline($("timeline").firstElementChild, {
	chosen: (range) => { if (range) hold(); set({ range: range ? range.join("-") : "", ...(range ? { paused: "1" } : {}) }); },
	base: (range) => { if (range) hold(); set({ baseRange: range ? range.join("-") : "", ...(range ? { paused: "1" } : {}) }); },
});

function menuOf(flame, node, keys, x, y) {
	const name = nameOf(node);
	openMenu($("menu"), [
		["Copy the name", () => copy(name)],
		["Zoom in", () => flame.zoomTo(keys)],
		["Callers and callees", () => drawn.choose(node)],
		["Only stacks with this function", () => set({ focus: name })],
		["Leave this function out", () => set({ drop: join([...new Set([...split(state.drop), name])]) || state.drop })],
		[state.recursion ? "Show recursion" : "Recursion as one frame", () => set({ recursion: state.recursion ? "" : "1" })],
	], x, y, flame.canvas);
}

/**
 * The zoomKey() that the zoom belongs to. When the key changes, the zoom is looked up again by names, because another
 * stream numbers its frames differently.
 */
let zoomed = "";
const zoomKey = (sandwich) => JSON.stringify(sandwich ? [shown.from.born, state.chosen] : [shown.from.born, "", state.zoom]);
function keepZoom(sandwich) {
	const now = zoomKey(sandwich), names = sandwich ? [] : split(state.zoom);
	// Frames of the path that do not exist yet may come with the next window.
	if (now === zoomed && upper.zoom.length >= names.length) return;
	if (now !== zoomed) lower.zoom = [];
	zoomed = now;
	upper.zoomToNames(names);
}

function drawGraphs() {
	const sandwich = state.view === "sandwich", diff = shown.base !== null && !sandwich;
	$("main").dataset.view = state.view;
	document.querySelectorAll("nav [data-view]").forEach((b) => b.setAttribute("aria-pressed", String(b.dataset.view === state.view)));
	for (const id of ["upper-title", "lower-title", "lower"]) $(id).hidden = !sandwich;
	const narrowed = [...NARROWED, "range"].some((key) => key !== "search" && state[key]);
	for (const flame of [upper, lower]) {
		flame.matches = shown.matches;
		flame.diff = diff;
		flame.empty = narrowed ? "No samples match the filters." : "No samples here yet.";
	}
	upper.icicle = state.view === "icicle";
	lower.icicle = true;
	if (sandwich) {
		$("upper-title").textContent = `Callers of ${state.chosen}`;
		$("lower-title").textContent = "Callees";
		upper.root = shown.callers;
		keepZoom(true);
		$("crumbs").replaceChildren("Choose a function in the table, or press b on a frame of the flame graph.");
		upper.draw();
		lower.show(shown.callees);
	} else {
		upper.root = shown.tree;
		keepZoom(false);
		upper.draw();
		showCrumbs(upper.line());
	}
}

/** Lists the restrictions set by a frame's menu or the timeline, each with a button that removes it. */
function drawChips() {
	const list = [];
	if (state.focus) list.push([`only stacks with ${state.focus}`, { focus: "" }]);
	for (const name of split(state.drop)) list.push([`without ${name}`, { drop: join(split(state.drop).filter((n) => n !== name)) }]);
	if (state.recursion) list.push(["recursion as one frame", { recursion: "" }]);
	if (state.range) list.push(["the time that was chosen", { range: "" }]);
	if (state.baseRange) list.push(["the time compared with", { baseRange: "" }]);
	const key = JSON.stringify(list);
	if ($("chips").dataset.key === key) return;
	$("chips").dataset.key = key;
	$("chips").replaceChildren(...list.map(([label, back]) => {
		const button = text("button", label + " ✕");
		button.type = "button";
		button.setAttribute("aria-label", "take back: " + label);
		button.addEventListener("click", () => set(back));
		return button;
	}));
}

function drawSummary() {
	const { total, ms, baseMs, base, from, table, end } = shown;
	const cores = ms > 0 && state.kind === "0" ? ` · ${(total / (ms * 1e6)).toFixed(2)} cores` : "";
	const what = { 0: "CPU time", 1: "time off CPU", wall: "time on and off CPU" }[state.kind] ?? "of " + probeOf(state.kind);
	const compared = base ? ` · compared with ${seconds(baseMs)}, scaled ×${(ms / baseMs).toFixed(ms / baseMs < 10 ? 1 : 0)}` :
		state.base || state.baseRange ? " · there is no earlier time to compare with" : "";
	$("summary").replaceChildren(text("strong", amount(total)), ` ${what} in ${seconds(ms)}${cores} · ${table.length} functions${compared}` +
		(held ? ` · ends ${new Date(end).toLocaleTimeString()}` : "") + (from.skipped ? ` · ${from.skipped} windows skipped` : ""));
	$("summary").dataset.ns = String(Math.round(total));
	$("summary").dataset.rows = String(from.rowNode.length);
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
	functions.show(shown.table, rows, { types: shown.from.types, total, diff, sort: state.sort, hit });
	const column = state.sort.replace("-", ""), ascending = (column === "name") !== state.sort.startsWith("-");
	document.querySelectorAll("th button").forEach((b) =>
		b.parentElement.setAttribute("aria-sort", b.dataset.sort !== column ? "none" : ascending ? "ascending" : "descending"));
	const more = shown.table.length - rows;
	$("count").textContent = more > 0 ? `${rows} of ${shown.table.length} functions` : "";
	$("more-rows").hidden = more <= 0;
}

let legendKey = "", present = [], presentOf = 0;
function drawLegend() {
	const diff = shown.base !== null && state.view !== "sandwich";
	// Frame 0, "[other]", is always in the table but seldom in the graph.
	const { frameType } = view();
	if (presentOf !== frameType.length) present = [...new Set(frameType.slice(1))].sort((a, b) => a - b);
	presentOf = frameType.length;
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
		const name = view().types[type], li = text("li", ""), button = text("button", ""), mark = text("i", "");
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
	const { types, strings, frameFile } = shown.from;
	const type = node.type >= 0 ? labelOf(types[node.type]) : "", file = node.frame >= 0 ? strings[frameFile[node.frame]] : "";
	const note = node.frame === 0 ? "stacks that nobody had in the last five minutes, or for which there was no room" : [type, file].filter(Boolean).join(" · ");
	const lines = [text("strong", node.name), text("div", note),
		text("div", `total ${amount(node.total)}, ${percent(node.total, shown.total)} · self ${percent(node.self, shown.total)}`)];
	if (shown.base && state.view !== "sandwich") lines.push(text("div", `before ${amount(node.base)}`));
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

/** Fills the lists of the filters, but not while one has the focus: it would change while the user chooses. */
function fillFilters() {
	const now = performance.now();
	if (now < filtersAt || FILTERS.includes(document.activeElement?.id)) return;
	const from = view(), lists = choices(from, state.window === "0");
	filtersAt = lists.process.length ? now + FILTERS_MS : 0; // 0: try again soon, because the history comes after the totals
	for (const key of FILTERS) fill($(key), lists[key], state[key]);
	document.querySelectorAll(".kube").forEach((e) => { e.hidden = !lists.namespace.length; });
	document.querySelector(".box").hidden = !lists.container.length;
	document.querySelector(".labelled").hidden = !lists.label.length && !state.label;
	fillGroups(lists.key);
	fillTraces(from);
	fillKinds(from);
}

/** Fills the list of groupings: those that all samples have, and the key of each label. */
function fillGroups(keys) {
	const select = $("group"), fixed = [...select.options].filter((o) => !o.value.startsWith("label:")), by = state.group;
	const list = by.startsWith("label:") && !keys.some(([value]) => value === by) ? [...keys, [by, by.slice(6)]] : keys;
	const key = JSON.stringify(list);
	if (select.dataset.key !== key && document.activeElement !== select) {
		select.dataset.key = key;
		select.replaceChildren(...fixed, ...list.map(([value, label]) => new Option(label, value)));
	}
	select.value = by;
}

/** Fills the suggestions of the trace field. */
function fillTraces(from) {
	const ids = traces(from), key = ids.join();
	document.querySelector(".traced").hidden = !ids.length && !state.trace;
	if ($("traces").dataset.key === key) return;
	$("traces").dataset.key = key;
	$("traces").replaceChildren(...ids.map((id) => new Option(id)));
}

/** Fills the list of kinds: CPU, off-CPU and wall clock if there is off-CPU time, and each probe by its name. */
function fillKinds(from) {
	const probes = new Set(from.groups.filter((g) => g.kind >= PROBE).map((g) => from.strings[g.kind - PROBE]));
	const waits = from.groups.some((g) => g.kind === 1) || state.kind === "1" || state.kind === "wall";
	probes.add(probeOf(state.kind)).delete("");
	const list = [["0", "CPU"], ...(waits ? [["1", "off-CPU"], ["wall", "wall clock"]] : []), ...[...probes].sort().map((p) => ["probe:" + p, p])];
	$("kinds").hidden = list.length === 1;
	const key = JSON.stringify(list);
	if ($("kind").dataset.key === key || document.activeElement?.id === "kind") return;
	$("kind").dataset.key = key;
	$("kind").replaceChildren(...list.map(([value, label]) => new Option(label, value)));
	$("kind").value = state.kind;
}

function showControls() {
	if (![...$("kind").options].some((o) => o.value === state.kind)) fillKinds(view());
	if (![...$("group").options].some((o) => o.value === state.group)) fillGroups([]);
	for (const key of ["window", "base", "kind", "group"]) $(key).value = state[key];
	for (const o of $("base").options) o.disabled = Number(o.value) > 0 && !hasTimeBefore();
	if (document.activeElement !== $("trace")) $("trace").value = state.trace;
	if (state.trace) document.querySelector(".traced").hidden = false;
	for (const key of FILTERS) {
		if (state[key] && ![...$(key).options].some((o) => o.value === state[key])) fill($(key), [], state[key]);
		$(key).value = state[key];
	}
	if ($("search").value !== state.search) $("search").value = state.search;
	$("regex").setAttribute("aria-pressed", String(Boolean(state.regex)));
	$("pause").setAttribute("aria-pressed", String(Boolean(held)));
	$("pause").textContent = held ? "Go on" : "Pause";
	const otlp = document.querySelector("[data-download=otlp]");
	otlp.disabled = Boolean(held) || isNarrowed();
	otlp.title = held ? "the agent makes OTLP, and no longer has the paused time; pprof and folded have it" :
		isNarrowed() ? "the agent makes OTLP, and cannot leave frames or stacks out; pprof and folded do" : "";
}

function hold() {
	held ??= model.snapshot();
	state.paused = "1";
}
function pause() {
	if (held) { held = null; set({ paused: "", range: "", baseRange: "" }); } else { hold(); set({}); }
	tellAge();
}

/** The address was changed by hand, by a link or by the back button. */
function readAddress() {
	const read = parse(location.hash);
	if (read.token) token = read.token;
	Object.assign(state, read.state);
	if (!state.paused) held = null;
	else if (model.windows.length) hold();
	write(state, false);
	showControls();
	if (shown) compute();
}

/** Whether the page leaves out stacks or frames by settings that the agent does not know: its profiles would have them. */
function isNarrowed() { return Boolean(state.focus || state.drop || state.recursion || state.hidden); }

async function download(format) {
	const stamp = new Date().toISOString().slice(0, 19).replace(/[:T]/g, "-"), { from, weights, hide, ms, end } = shown;
	if (format === "svg") {
		const svg = toSvg(upper.line(), from.types, `${from.host} · ${amount(shown.total)} in ${seconds(ms)}`, upper);
		return save(new Blob([svg], { type: "image/svg+xml" }), `kiln-${stamp}.svg`);
	}
	const ending = { pprof: "pb.gz", folded: "folded", otlp: "otlp.pb" }[format], file = `kiln-${stamp}.${ending}`, own = held || isNarrowed();
	if (own && format === "folded") return save(new Blob([toFolded(from, weights, hide, state.kind === "wall")], { type: "text/plain" }), file);
	if (own && format === "pprof") return save(await gzip(toPprof(from, weights, hide, end - ms, ms, state.kind)), file);
	const headers = token ? { Authorization: "Bearer " + token } : {};
	const answer = await fetch("api/profile?" + profileQuery(format, state.window, filter()), { headers, cache: "no-store" });
	if (!answer.ok) return say((await answer.text()).trim(), true);
	save(await answer.blob(), file);
}

function remembered(key) { try { return localStorage.getItem("kiln-" + key); } catch { return null; /* private windows have none */ } }
function remember(key, value) { try { localStorage.setItem("kiln-" + key, value); } catch { /* as above */ } }

function theme(next) {
	document.documentElement.dataset.theme = next;
	remember("theme", next);
	if (shown) paint();
}

function bind() {
	for (const key of ["window", "base", "kind", "group", ...FILTERS])
		$(key).addEventListener("change", () => {
			filtersAt = 0;
			set({ [key]: $(key).value, zoom: "", ...(key === "window" ? { range: "" } : key === "base" ? { baseRange: "" } : {}) });
		});
	$("trace").addEventListener("input", () => {
		const id = $("trace").value.trim().toLowerCase().replaceAll("-", ""), bad = !/^[0-9a-f]{0,32}$/.test(id);
		$("trace").setAttribute("aria-invalid", String(bad));
		if (bad || !shown) return;
		state.trace = id;
		write(state, false);
		compute();
	});
	$("controls").addEventListener("submit", (e) => e.preventDefault());
	$("clear").addEventListener("click", () => set(Object.fromEntries(NARROWED.map((k) => [k, ""]))));
	let wait = 0, asked = 0;
	$("search").addEventListener("input", () => {
		state.search = $("search").value;
		// Paints at most once per animation frame, however fast the user types. The address is written later, because
		// browsers limit how often it may change.
		if (!asked) asked = requestAnimationFrame(() => { asked = 0; if (shown) paint(); });
		clearTimeout(wait);
		wait = setTimeout(() => write(state, false), 250);
	});
	$("search").addEventListener("keydown", (e) => { if (e.key === "Enter" && shown) { upper.findNext(e.shiftKey ? -1 : 1); e.preventDefault(); } });
	$("next").addEventListener("click", () => upper.findNext(1));
	$("previous").addEventListener("click", () => upper.findNext(-1));
	$("regex").addEventListener("click", () => { if (shown) set({ regex: state.regex ? "" : "1" }); });
	$("more").addEventListener("click", () => {
		const open = $("controls").classList.toggle("open");
		$("more").setAttribute("aria-expanded", String(open));
	});
	$("pause").addEventListener("click", () => { if (shown) pause(); });
	$("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
	$("help-open").addEventListener("click", () => $("help").showModal());
	document.querySelector("nav").addEventListener("click", (e) => {
		const { view: next, download: format } = e.target.dataset ?? {};
		if (next) choose(next);
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
		if (by) set({ sort: state.sort === by ? "-" + by : by });
		else if (name) set({ view: "sandwich", chosen: name });
	});
	$("more-rows").addEventListener("click", () => { rows += TABLE_ROWS; drawTable(); });
	$("login").addEventListener("close", () => { token = $("token").value; $("token").value = ""; connect(); });
	$("keys").checked = remembered("keys") !== "off";
	$("keys").addEventListener("change", () => remember("keys", $("keys").checked ? "on" : "off"));
	addEventListener("popstate", readAddress);
	document.addEventListener("keydown", keys);
	document.addEventListener("scroll", () => showTip(null), { passive: true, capture: true });
}

function choose(next) {
	upper.drawn = false;
	if (shown) set({ view: next });
}

function keys(e) {
	if (e.ctrlKey || e.metaKey || e.altKey || $("help").open || $("login").open || !$("menu").hidden || !shown) return;
	if (e.key === "Escape") {
		if (document.activeElement === $("search") && $("search").value) { $("search").value = ""; $("search").dispatchEvent(new Event("input")); }
		else if (state.view === "sandwich") set({ view: "flame" });
		else upper.zoomTo([]);
		$("upper").firstElementChild.focus();
		return;
	}
	if (/^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName) || !$("keys").checked) return;
	const windows = { 1: "10", 2: "60", 3: "300", 4: "0" }, views = { f: "flame", i: "icicle", s: "sandwich", l: "table" };
	if (e.key === "/") $("search").focus();
	else if (e.key === "p") pause();
	else if (e.key === "n" || e.key === "N") upper.findNext(e.key === "n" ? 1 : -1);
	else if (e.key === "t") $("theme").click();
	else if (e.key === "?") $("help").showModal();
	else if (windows[e.key]) set({ window: windows[e.key], range: "" });
	else if (views[e.key]) choose(views[e.key]);
	else return;
	e.preventDefault();
}

// ---- the stream

function say(message, bad) {
	$("status").textContent = message;
	$("status").classList.toggle("bad", Boolean(bad));
}

/** Shows for how long no data have come: an open connection alone does not make the page live. */
function tellAge() {
	const late = heardAt && performance.now() - heardAt > model.interval + LATE_MS;
	$("age").textContent = !heardAt ? "" : held ? "paused" : late ? `no data for ${seconds(performance.now() - heardAt)}` : "";
	$("age").classList.toggle("bad", Boolean(late && !held));
}

function changed() {
	failures = 0;
	heardAt = performance.now();
	firstAt ||= heardAt;
	tellAge();
	// A link to a paused page: pauses once the history has arrived.
	if (state.paused && !held && heardAt - firstAt > HOLD_MS) { hold(); showControls(); }
	if (!timer) timer = setTimeout(update, shown ? REDRAW_MS : 0);
}

function update() {
	$("host").textContent = model.host;
	const { version } = model;
	if (held && shown?.from === held) { timer = 0; return; }
	computeBetweenFrames(() => {
		setTimeout(fillFilters);
		// Windows that came meanwhile are not in the picture: update again.
		timer = model.version !== version ? setTimeout(update, REDRAW_MS) : 0;
	});
}

async function connect() {
	try {
		await follow(model, () => token, undefined, (what) => {
			if (what === "token") { say("a token is needed", true); $("login").showModal(); }
			else { filtersAt = 0; say("live"); }
		}, changed);
	} catch (error) {
		failures++;
		say(`no connection: ${error.message}; trying again`, true);
		setTimeout(connect, Math.min(1000 * failures, 10000));
	}
}

document.documentElement.dataset.theme = remembered("theme") || (matchMedia("(prefers-color-scheme: light)").matches ? "light" : "dark");
bind();
readAddress();
setInterval(tellAge, 1000);
connect();
window.kiln = { model, state, timeline, upper, lower, get shown() { return shown; }, get held() { return held; } };
