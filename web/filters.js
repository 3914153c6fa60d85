// The lists of the filters: those with samples in the last five minutes, by weight, the largest first.

import { containerLabel } from "./model.js";

const OPTIONS = 400, PIDS = 20, TRACES = 50;

/** Weight of each group in the last five minutes. */
function recent(model) {
	const { counts } = model.counts(300), out = new Float64Array(model.groups.length);
	for (let row = 0; row < counts.length; row++) if (counts[row]) out[model.rowGroup[row]] += counts[row] * model.weight(model.groups[model.rowGroup[row]]);
	return out;
}

/**
 * {process, thread, namespace, pod, container, label, key: [[value, label], ...]}; value null: says how many are left out.
 * ALL: also those without samples in the last five minutes.
 */
export function choices(model, all) {
	const weights = recent(model), maps = { process: new Map(), thread: new Map(), namespace: new Map(), pod: new Map(), container: new Map(), label: new Map(), key: new Map() };
	const pids = new Map();
	const put = (map, value, label, weight) => {
		const entry = map.get(value) ?? [0, label];
		entry[0] += weight;
		map.set(value, entry);
	};
	model.groups.forEach((g, i) => {
		if (!i || !(weights[i] || all)) return;
		const name = model.strings[g.process];
		put(maps.process, name, name, weights[i]);
		if (!pids.has(name)) pids.set(name, new Map());
		if (g.pid) put(pids.get(name), g.pid, `  ${name} ${g.pid}`, weights[i]); // 0: counts of dropped entries
		for (const key of ["thread", "namespace", "pod", "container"]) {
			const value = model.strings[g[key]];
			if (value) put(maps[key], value, key === "container" ? containerLabel(model, g) : value, weights[i]);
		}
		for (const label of model.labelsOf(g)) {
			put(maps.label, label.join("="), label.join("="), weights[i]);
			put(maps.key, "label:" + label[0], label[0], weights[i]);
		}
	});
	const sorted = (map) => [...map].sort((a, b) => b[1][0] - a[1][0] || (a[1][1] < b[1][1] ? -1 : 1)).map(([value, [, label]]) => [value, label]);
	const out = { key: sorted(maps.key).slice(0, OPTIONS) };
	for (const key of ["thread", "namespace", "pod", "container", "label"]) out[key] = firstOf(sorted(maps[key]), OPTIONS, "");
	const names = sorted(maps.process), list = out.process = [];
	let n = 0;
	for (; n < names.length && list.length < OPTIONS; n++) {
		const [name] = names[n], of = sorted(pids.get(name));
		list.push(["name:" + name, of.length > 1 ? `${name} (all ${of.length})` : name]);
		if (of.length > 1) list.push(...firstOf(of.map(([pid, label]) => ["pid:" + pid, label]), PIDS, "  "));
	}
	if (n < names.length) list.push([null, `${n} of ${names.length} programs`]);
	return out;
}

/** The first MOST of ENTRIES. If there are more, also an entry that says so and cannot be chosen. */
function firstOf(entries, most, indent) {
	return entries.length > most ? [...entries.slice(0, most), [null, `${indent}${most} of ${entries.length}`]] : entries;
}

/** Ids of the traces that had most CPU time in the last five minutes. */
export function traces(model) {
	const sums = new Map(), cpu = model.groups.map((g) => (g.kind === 0 ? g.period : 0));
	for (const w of model.windows) model.eachOfTrace(w, "", (row, value, id) => sums.set(id, (sums.get(id) ?? 0) + value * cpu[model.rowGroup[row]]));
	return [...sums].sort((a, b) => b[1] - a[1]).slice(0, TRACES).map(([id]) => id);
}

/** Fills a select, which keeps VALUE even when it is not among ENTRIES. */
export function fill(select, entries, value) {
	const list = [["", "all"], ...entries];
	if (value && !entries.some(([v]) => v === value)) list.push([value, value.replace(/^(pid|name):/, "")]);
	const key = JSON.stringify(list);
	if (select.filled !== key)
		select.replaceChildren(...list.map(([v, label]) => {
			const o = document.createElement("option");
			if (v === null) o.disabled = true;
			else o.value = v;
			o.textContent = label;
			return o;
		}));
	select.filled = key;
	select.value = value;
}
