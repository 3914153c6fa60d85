// What the agent told: tables that only grow, totals, and the windows of the last five minutes.
// From it, by filters and times: weights of rows, trees, the table of functions. No DOM here.

const KEEP_MS = 305000;

export class Model {
	constructor() { this.received = 0; this.reset(); }

	reset() {
		this.strings = [];
		this.types = [];
		this.frameName = []; this.frameFile = []; this.frameType = [];
		this.nodeParent = []; this.nodeFrame = [];
		this.groups = [];
		this.rowGroup = []; this.rowNode = [];
		this.totals = new Float64Array(1024);
		this.windows = [];
		this.since = 0; this.interval = 0; this.skipped = 0; this.host = "";
		this.version = 0;
	}
	addFrame(name, file, type) { this.frameName.push(name); this.frameFile.push(file); this.frameType.push(type); }
	addNode(distance, frame) { this.nodeParent.push(this.nodeParent.length - distance); this.nodeFrame.push(frame); }
	addGroup(g) { this.groups.push(g); }
	addRow(group, node) {
		this.rowGroup.push(group);
		this.rowNode.push(node);
		if (this.rowNode.length > this.totals.length) {
			const grown = new Float64Array(this.totals.length * 2);
			grown.set(this.totals);
			this.totals = grown;
		}
	}
	setTotals({ rows, values }) {
		this.totals.fill(0);
		rows.forEach((row, i) => { this.totals[row] = values[i]; });
		this.version++;
	}
	addWindow(w, isNew) {
		this.windows.push(w);
		if (isNew) w.rows.forEach((row, i) => { this.totals[row] += w.values[i]; });
		while (this.windows.length && this.windows[0].start + KEEP_MS < w.start) this.windows.shift();
		this.version++;
	}
	end() { const w = this.windows[this.windows.length - 1]; return w ? w.start + w.duration : this.since; }

	/** Counts of all rows in [end - seconds, end), or since the start when seconds is 0; and the time covered. */
	counts(seconds, end = this.end()) {
		const out = new Float64Array(this.rowNode.length);
		if (!seconds) {
			out.set(this.totals.subarray(0, out.length));
			return { counts: out, ms: Math.max(this.end() - this.since, 0) };
		}
		let ms = 0;
		for (const w of this.windows) {
			const middle = w.start + w.duration / 2;
			if (middle >= end || middle < end - seconds * 1000) continue;
			ms += w.duration;
			for (let i = 0; i < w.rows.length; i++) out[w.rows[i]] += w.values[i];
		}
		return { counts: out, ms };
	}

	/** A number of nanoseconds for each count of a group: CPU samples stand for their period. */
	weight(group) { return group.kind === 0 ? group.period : 1; }

	/** One byte for each group: whether FILTER (process "pid", thread, container, ... by value) has it. */
	selected(filter) {
		const ok = new Uint8Array(this.groups.length);
		const text = (i) => this.strings[i];
		this.groups.forEach((g, i) => {
			ok[i] = g.kind === filter.kind &&
				(!filter.process || filterProcess(filter.process, g.pid, text(g.process))) &&
				(!filter.thread || text(g.thread) === filter.thread) &&
				(!filter.namespace || text(g.namespace) === filter.namespace) &&
				(!filter.pod || text(g.pod) === filter.pod) &&
				(!filter.container || text(g.container) === filter.container) ? 1 : 0;
		});
		return ok;
	}

	/** Weights of rows in ns under FILTER. */
	rowWeights(counts, filter) {
		const ok = this.selected(filter), out = new Float64Array(counts.length);
		for (let i = 0; i < counts.length; i++) {
			const group = this.rowGroup[i];
			if (counts[i] > 0 && ok[group]) out[i] = counts[i] * this.weight(this.groups[group]);
		}
		return out;
	}

	groupLabel(g, by) {
		const text = (i) => this.strings[i];
		if (by === "process") return text(g.process) + (g.pid ? ` (${g.pid})` : "");
		if (by === "thread") return text(g.thread) || "[no name]";
		if (by === "container") return containerLabel(this, g);
		return "";
	}
}

/** A filter is "pid:12" or "name:python3". */
function filterProcess(filter, pid, name) {
	return filter.startsWith("pid:") ? pid === Number(filter.slice(4)) : name === filter.slice(5);
}

export function containerLabel(model, g) {
	const name = model.strings[g.containerName], pod = model.strings[g.pod], id = model.strings[g.container];
	if (name) return pod ? `${pod}/${name}` : name;
	return id ? id.slice(0, 12) : "[host]";
}

/** Trees: {key, name, type, file, self, total, base, children: Map, frame}. */
function treeNode(name, type, frame) { return { name, type, frame, self: 0, total: 0, base: 0, children: null }; }

function child(node, key, make) {
	if (!node.children) node.children = new Map();
	let c = node.children.get(key);
	if (!c) { c = make(); node.children.set(key, c); }
	return c;
}

/**
 * The call tree of rows with these weights. HIDDEN: frame types that are left out. BASE: weights to
 * compare with, or null. GROUP: how roots are grouped.
 *
 * Within a group the agent's trie is the tree already: leaves get their rows' weights, and one pass
 * from the newest node to the oldest adds each to its parent, which is always older.
 */
export function buildTree(model, weights, base, hidden, group) {
	const root = treeNode("all", -1, -1), labels = new Map();
	const n = Math.max(weights.length, base ? base.length : 0);
	for (let row = 0; row < n; row++) {
		if (!(weights[row] || (base && base[row]))) continue;
		const label = group ? model.groupLabel(model.groups[model.rowGroup[row]], group) : "";
		const rows = labels.get(label);
		if (rows) rows.push(row); else labels.set(label, [row]);
	}
	const count = model.nodeParent.length, slot = new Int32Array(count).fill(-1);
	for (const [label, rows] of labels) {
		const top = group ? child(root, "g" + label, () => treeNode(label, -1, -1)) : root;
		addRows(model, top, rows, weights, base, hidden, slot);
		if (group) { root.total += top.total; root.base += top.base; }
	}
	return root;
}

function addRows(model, top, rows, weights, base, hidden, slot) {
	const { nodeParent, nodeFrame, frameType } = model, found = [];
	for (const row of rows)
		for (let node = model.rowNode[row]; slot[node] < 0; node = nodeParent[node]) {
			slot[node] = 0;
			found.push(node);
			if (node <= 0) break;
		}
	const touched = Int32Array.from(found).sort();
	touched.forEach((node, i) => { slot[node] = i; });
	const trees = new Array(touched.length), total = new Float64Array(touched.length);
	const self = new Float64Array(touched.length), before = new Float64Array(touched.length);
	for (const row of rows) {
		const i = slot[model.rowNode[row]];
		self[i] += weights[row] || 0;
		total[i] += weights[row] || 0;
		if (base) before[i] += base[row] || 0;
	}
	for (let i = touched.length - 1; i > 0; i--) {
		const up = slot[nodeParent[touched[i]]];
		total[up] += total[i];
		before[up] += before[i];
	}
	touched.forEach((node, i) => {
		const f = nodeFrame[node];
		if (node === 0) trees[i] = top;
		else {
			const above = trees[slot[nodeParent[node]]];
			// A hidden frame is its caller: what it called is the caller's.
			if (hidden.has(frameType[f])) { trees[i] = above; above.self += self[i]; return; }
			trees[i] = child(above, f, () => treeNode(model.strings[model.frameName[f]], frameType[f], f));
		}
		trees[i].total += total[i];
		trees[i].base += before[i];
		trees[i].self += self[i];
	});
	for (const node of touched) slot[node] = -1;
}

/** Callers (towards the roots) and callees of every frame that is called NAME. */
export function buildSandwich(model, weights, hidden, name) {
	const callers = treeNode(name, -1, -1), callees = treeNode(name, -1, -1);
	const { nodeParent, nodeFrame, frameType, frameName, strings } = model;
	const wanted = new Uint8Array(frameName.length), path = [];
	frameName.forEach((s, f) => { wanted[f] = strings[s] === name ? 1 : 0; });
	for (let row = 0; row < weights.length; row++) {
		const w = weights[row];
		if (!w) continue;
		path.length = 0;
		for (let node = model.rowNode[row]; node > 0; node = nodeParent[node])
			if (!hidden.has(frameType[nodeFrame[node]])) path.push(nodeFrame[node]);
		// path is leaf first; recursion counts once: callers from the outermost, callees from the innermost.
		let inner = -1, outer = -1;
		for (let i = 0; i < path.length; i++)
			if (wanted[path[i]]) { if (inner < 0) inner = i; outer = i; }
		if (inner < 0) continue;
		for (const [tree, from, step, end] of [[callers, outer + 1, 1, path.length], [callees, inner - 1, -1, -1]]) {
			let at = tree;
			at.type = frameType[path[inner]];
			at.frame = path[inner];
			at.total += w;
			for (let i = from; i !== end; i += step) {
				const f = path[i];
				at = child(at, f, () => treeNode(strings[frameName[f]], frameType[f], f));
				at.total += w;
			}
			at.self += w;
		}
	}
	return { callers, callees };
}

/** Self and total of each function by name, a function on a stack twice counted once. */
export function buildTable(model, weights, base, hidden) {
	const { nodeParent, nodeFrame, frameType, frameName } = model;
	const byName = new Array(model.strings.length), seen = new Int32Array(model.strings.length).fill(-1), out = [];
	const hide = Uint8Array.from(frameType, (t) => (hidden.has(t) ? 1 : 0));
	const n = Math.max(weights.length, base ? base.length : 0);
	for (let row = 0; row < n; row++) {
		const w = weights[row] || 0, b = base ? base[row] || 0 : 0;
		if (!w && !b) continue;
		let leaf = true;
		for (let node = model.rowNode[row]; node > 0; node = nodeParent[node]) {
			const f = nodeFrame[node], key = frameName[f];
			if (hide[f]) continue;
			let entry = byName[key];
			if (!entry) {
				entry = { name: model.strings[key], type: frameType[f], file: model.strings[model.frameFile[f]], self: 0, total: 0, base: 0 };
				byName[key] = entry;
				out.push(entry);
			}
			if (leaf) entry.self += w;
			leaf = false;
			if (seen[key] === row) continue;
			seen[key] = row;
			entry.total += w;
			entry.base += b;
		}
	}
	return out;
}

/** Weight of rows with a frame that MATCHES (an array over frames). */
export function matchedWeight(model, weights, matches) {
	let sum = 0;
	for (let row = 0; row < weights.length; row++) {
		if (!weights[row]) continue;
		for (let node = model.rowNode[row]; node > 0; node = model.nodeParent[node])
			if (matches[model.nodeFrame[node]]) { sum += weights[row]; break; }
	}
	return sum;
}
