// Call trees of the selected samples, with objects only for frames that are needed. No DOM here.
//
// The agent's trie is a tree already: a selection only adds weights. A forest holds the selected part of the
// trie in flat arrays, parents before children, so that one pass from the end to the beginning adds each entry
// to its parent. Frames get objects when they are drawn or asked for, children only if they are as wide as the
// caller wants: most of 50,000 stacks never get any.
//
// Long computations are generators that yield every few thousand rows, so that the caller can let the browser
// draw in between.

/** Rows, nodes or entries between two yields. */
const STEP = 2048;

/** Runs the generator STEPS to its end and returns its result. */
export function finish(steps) {
	let step;
	do step = steps.next(); while (!step.done);
	return step.value;
}

/**
 * One byte for each node of the trie: whether it is hidden, so that its weight goes to its caller.
 * HIDDEN: {types: a set of frame types, names: a set of functions' names, recursion: whether a function that
 * calls itself directly is shown as one frame}.
 */
export function hiddenNodes(model, { types, names, recursion }) {
	const { frameType, frameName, nodeFrame, nodeParent, nodeAgain } = model, hide = new Uint8Array(nodeParent.length);
	if (!types.size && !names.size && !recursion) return { hide, hides: false };
	const ids = new Set([...names].map((name) => model.strings.indexOf(name)));
	const frames = Uint8Array.from(frameType, (type, f) => (types.has(type) || ids.has(frameName[f]) ? 1 : 0));
	for (let node = 1; node < hide.length; node++) {
		hide[node] = frames[nodeFrame[node]];
		if (!recursion || hide[node] || !nodeAgain[node]) continue;
		let up = nodeParent[node];
		while (up > 0 && frames[nodeFrame[up]]) up = nodeParent[up];
		if (up > 0 && frameName[nodeFrame[up]] === frameName[nodeFrame[node]]) hide[node] = 1;
	}
	return { hide, hides: true };
}

class Forest {
	constructor() {
		this.count = this.size = 0;
		this.grow(4096);
	}

	grow(size) {
		const grown = (old, Kind) => { const a = new Kind(size); if (old) a.set(old); return a; };
		for (const key of ["node", "parent", "first", "next"]) this[key] = grown(this[key], Int32Array);
		for (const key of ["total", "self", "base"]) this[key] = grown(this[key], Float64Array);
		this.size = size;
	}

	/** Adds an entry for NODE of the trie under the entry PARENT; -1: as a root. */
	add(node, parent) {
		if (this.count === this.size) this.grow(this.size * 2);
		const i = this.count++;
		this.node[i] = node;
		this.parent[i] = parent;
		this.first[i] = -1;
		this.total[i] = this.self[i] = this.base[i] = 0;
		if (parent >= 0) {
			this.next[i] = this.first[parent];
			this.first[parent] = i;
		}
		return i;
	}

	/**
	 * Adds the nodes of rows[from..to) and their callers up to the roots, which are the entries from START on.
	 * SLOT: scratch, an array over the trie with any contents. A node in HIDE gives its own weight to its caller.
	 */
	*fill(model, rows, from, to, start, slot, { weights, base }, hide) {
		const { nodeParent, rowNode } = model, way = [];
		for (let i = start; i < this.count; i++) slot[this.node[i]] = i;
		for (let k = from; k < to; k++) {
			if (k % STEP === 0) yield;
			const row = rows[k];
			let node = rowNode[row], at = slot[node];
			while (!(at >= start && at < this.count && this.node[at] === node)) {
				way.push(node);
				node = nodeParent[node];
				at = slot[node];
			}
			while (way.length) {
				node = way.pop();
				at = this.add(node, at);
				slot[node] = at;
			}
			if (row < weights.length) this.self[at] += weights[row];
			if (base && row < base.length) this.base[at] += base[row];
		}
		const { parent, total, self, base: before, node: nodes } = this;
		for (let i = this.count - 1; i >= start; i--) {
			if (i % STEP === 0) yield;
			const up = parent[i];
			total[i] += self[i];
			if (up < 0) continue;
			total[up] += total[i];
			before[up] += before[i];
			if (hide[nodes[i]]) {
				total[up] -= self[i]; // added again with self[up]
				self[up] += self[i];
				self[i] = 0;
			}
		}
	}
}

/** Forests to use in turn: one is on the screen, another may be left unfinished because the user chose something else. */
const turns = { tree: [], callees: [] };
for (const list of Object.values(turns)) for (let i = 0; i < 3; i++) list.push(new Forest());
function nextForest(which) {
	const forest = turns[which].shift();
	turns[which].push(forest);
	forest.count = 0;
	return forest;
}
let slots = new Int32Array(0);
function slotsFor(model) {
	if (slots.length < model.nodeParent.length) slots = new Int32Array(model.nodeParent.length * 2);
	return slots;
}

export const byName = (a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : a.frame - b.frame);

/** A frame of a graph: {name, type, frame, self, total, base}; its callers or callees are made when asked for. */
class Frame {
	constructor(name, type, frame) {
		this.name = name;
		this.type = type;
		this.frame = frame;
		this.total = this.base = this.own = 0;
		this.list = null;
		this.floor = Infinity;
	}

	/** [[key, frame], ...] of the callers or callees whose total is LEAST or more. */
	wide(least) {
		if (this.floor > least) {
			this.list = this.make(least);
			this.floor = least;
		}
		return this.floor === least ? this.list : this.list.filter(([, f]) => f.total >= least);
	}
	make() { return []; }
	get self() { return this.own; }
	/** An array for hasMark() of the frames below: marks the frames that MATCHES has (an array over frames), and the way to them. */
	marks() { return null; }
	hasMark() { return true; }
	child(key) { return this.wide(0).find(([k]) => k === key)?.[1]; }
	get children() { const all = this.wide(0); return all.length ? new Map(all) : null; }
}

/** The same frame in one or several places of a forest, whose callers are the same apart from hidden ones. */
class Callee extends Frame {
	constructor(of, name, type, frame) {
		super(name, type, frame);
		this.of = of;
		this.places = [];
	}

	add(place) {
		const { forest } = this.of;
		this.places.push(place);
		this.total += forest.total[place];
		this.own += forest.self[place];
		this.base += forest.base[place];
		return this;
	}

	marks(matches) {
		const { model, forest, hide } = this.of, { nodeFrame } = model, marks = new Uint8Array(forest.count);
		for (let i = forest.count - 1; i >= 0; i--) {
			const node = forest.node[i], up = forest.parent[i];
			if (node > 0 && !hide[node]) marks[i] |= matches[nodeFrame[node]];
			if (up >= 0) marks[up] |= marks[i];
		}
		return marks;
	}
	hasMark(marks) { return this.places.some((place) => marks[place]); }

	make(least) {
		const { model, forest, hide, hides } = this.of, { nodeFrame, frameType } = model, found = new Map();
		const whole = !hides && this.places.length === 1; // then no two of its children are the same frame
		const firsts = this.places.map((place) => forest.first[place]);
		while (firsts.length)
			for (let i = firsts.pop(); i >= 0; i = forest.next[i]) {
				const f = nodeFrame[forest.node[i]];
				if (hide[forest.node[i]]) { firsts.push(forest.first[i]); continue; }
				if (whole && forest.total[i] < least) continue;
				let frame = found.get(f);
				if (!frame) found.set(f, frame = new Callee(this.of, model.nameOf(f), frameType[f], f));
				frame.add(i);
			}
		return [...found].filter(([, frame]) => frame.total >= least);
	}
}

/** Nodes of the trie with the same frame, and the weight that passes through each; wide() gives their callers. */
class Caller extends Frame {
	constructor(of, name, type, frame) {
		super(name, type, frame);
		this.of = of;
		this.nodes = [];
		this.weights = [];
	}

	add(node, weight) {
		this.nodes.push(node);
		this.weights.push(weight);
		this.total += weight;
	}
	marks(matches) { return nodesWith(this.of.model, matches); }
	hasMark(marks) { return this.nodes.some((node) => marks[node]); }
	/** The weight of nodes without a caller; known once make() has looked for callers. */
	get self() {
		if (!this.list) this.wide(Number.MAX_VALUE);
		return this.own;
	}

	make(least) {
		const { model, hide } = this.of, { nodeParent, nodeFrame, frameType } = model, found = new Map();
		this.own = 0;
		this.nodes.forEach((node, i) => {
			do node = nodeParent[node]; while (node > 0 && hide[node]);
			if (node <= 0) { this.own += this.weights[i]; return; }
			const f = nodeFrame[node];
			let frame = found.get(f);
			if (!frame) found.set(f, frame = new Caller(this.of, model.nameOf(f), frameType[f], f));
			frame.add(node, this.weights[i]);
		});
		return [...found].filter(([, frame]) => frame.total >= least);
	}
}

/** The rows that have a weight, ordered by label, and where the rows of each label start. */
function rowsByLabel(model, { weights, base }, group) {
	const labels = [], numbers = new Map(), ofGroup = new Int32Array(model.groups.length).fill(-1);
	const { rowGroup } = model, n = Math.max(weights.length, base ? base.length : 0), has = new Int32Array(n).fill(-1);
	const starts = [];
	for (let row = 0; row < n; row++) {
		if (!(weights[row] || (base && base[row]))) continue;
		const g = rowGroup[row];
		if (ofGroup[g] < 0) {
			const label = group ? model.groupLabel(model.groups[g], group) : "";
			if (!numbers.has(label)) { numbers.set(label, labels.length); starts.push(0); labels.push(label); }
			ofGroup[g] = numbers.get(label);
		}
		has[row] = ofGroup[g];
		starts[has[row]]++;
	}
	let at = 0;
	for (let i = 0; i < starts.length; i++) { const count = starts[i]; starts[i] = at; at += count; }
	const rows = new Int32Array(at), fill = Int32Array.from(starts);
	for (let row = 0; row < n; row++) if (has[row] >= 0) rows[fill[has[row]]++] = row;
	return { labels, rows, starts };
}

/**
 * The call tree of rows with these weights, and its functions. HIDDEN: the frames left out, see hiddenNodes().
 * BASE: weights to compare with, or null. GROUP: how roots are grouped.
 */
export function buildTree(...what) { return finish(treeSteps(...what)); }

/** buildTree() in steps, between which MODEL may grow but not be reset. */
export function* treeSteps(model, weights, base, hidden, group) {
	const { labels, rows, starts } = rowsByLabel(model, { weights, base }, group), slot = slotsFor(model);
	yield;
	const { hide, hides } = hiddenNodes(model, hidden), forest = nextForest("tree"), of = { model, forest, hide, hides };
	const tops = [];
	for (const [i, label] of labels.entries()) {
		const top = forest.add(0, -1);
		yield* forest.fill(model, rows, starts[i], starts[i + 1] ?? rows.length, top, slot, { weights, base }, hide);
		tops.push(["g" + label, new Callee(of, label, -1, -1).add(top)]);
	}
	const table = yield* tableOf(model, forest, of);
	if (!group && tops.length) { tops[0][1].name = "all"; return { tree: tops[0][1], table }; }
	const root = new Frame("all", -1, -1);
	root.list = tops;
	root.floor = 0;
	for (const [, top] of tops) { root.total += top.total; root.base += top.base; }
	return { tree: root, table };
}

/** Self and total of each function by name; a function that is on a stack twice counts once. */
function* tableOf(model, forest, { hide, hides }) {
	const { nodeFrame, frameName, frameType, frameFile, strings } = model, byName = new Int32Array(strings.length).fill(-1), out = [];
	for (let i = 0; i < forest.count; i++) {
		if (i % STEP === 0) yield;
		const node = forest.node[i], f = nodeFrame[node];
		if (node <= 0 || hide[node]) continue;
		const id = frameName[f];
		if (byName[id] < 0) {
			byName[id] = out.length;
			out.push({ id, file: strings[frameFile[f]], fileId: frameFile[f], name: strings[id], type: frameType[f], self: 0, total: 0, base: 0 });
		}
		const entry = out[byName[id]];
		entry.self += forest.self[i];
		if (model.nodeAgain[node] && isAgain(model, node, id, hides && hide)) continue;
		entry.total += forest.total[i];
		entry.base += forest.base[i];
	}
	return out;
}

/** Whether a caller of NODE that is not hidden has the same name. */
function isAgain(model, node, name, hide) {
	if (!hide) return true;
	const { nodeParent, nodeFrame, frameName } = model;
	for (let up = nodeParent[node]; up > 0; up = nodeParent[up])
		if (frameName[nodeFrame[up]] === name && !hide[up]) return true;
	return false;
}

/**
 * Callers (towards the roots) and callees of every frame that is called NAME. Recursion counts once:
 * callers from the outermost, callees from the innermost.
 */
export function buildSandwich(...what) { return finish(sandwichSteps(...what)); }

/** buildSandwich() in steps, as treeSteps(). */
export function* sandwichSteps(model, weights, hidden, name) {
	const { nodeParent, nodeFrame, frameName, frameType, rowNode } = model, n = nodeParent.length;
	const { hide, hides } = hiddenNodes(model, hidden), id = model.strings.indexOf(name);
	const outer = new Int32Array(n), inner = new Int32Array(n), forest = nextForest("callees"), of = { model, forest, hide, hides };
	for (let node = 1; node < n; node++) {
		const up = nodeParent[node], f = nodeFrame[node], wanted = frameName[f] === id && !hide[node];
		outer[node] = outer[up] || (wanted ? node : 0);
		inner[node] = wanted ? node : inner[up];
		if (node % STEP === 0) yield;
	}
	const through = new Float64Array(n), rows = [], innermost = new Uint8Array(n), slot = slotsFor(model);
	for (let row = 0; row < weights.length; row++) {
		const node = rowNode[row];
		if (!weights[row] || !inner[node]) continue;
		rows.push(row);
		through[outer[node]] += weights[row];
		innermost[inner[node]] = 1;
		if (row % STEP === 0) yield;
	}
	const callers = new Caller(of, name, -1, -1), callees = new Callee(of, name, -1, -1);
	for (let node = 1; node < n; node++) {
		if (through[node]) callers.add(node, through[node]);
		if (innermost[node]) forest.add(node, -1);
		if (node % STEP === 0) yield;
	}
	const roots = forest.count;
	if (roots) callers.frame = callees.frame = nodeFrame[forest.node[0]];
	if (roots) callers.type = callees.type = frameType[callers.frame];
	yield* forest.fill(model, rows, 0, rows.length, 0, slot, { weights, base: null }, hide);
	for (let i = 0; i < roots; i++) callees.add(i);
	return { callers, callees };
}

/** One byte for each node: whether it or a caller of it MATCHES (an array over frames). */
function nodesWith(model, matches) {
	const { nodeParent, nodeFrame } = model, n = nodeParent.length, has = new Uint8Array(n);
	for (let node = 1; node < n; node++) has[node] = has[nodeParent[node]] | matches[nodeFrame[node]];
	return has;
}

/** The keys that lead from TOP to the widest frame below it that MATCHES (an array over frames), or null. */
export function widestMatch(top, matches) {
	const first = top.of ? top : top.wide(0)[0]?.[1], marks = first?.marks(matches), stack = [{ node: top }];
	let best = null;
	while (first && stack.length) {
		const at = stack.pop(), least = best ? best.node.total : 0;
		if (at.node.total <= least) continue;
		if (at.above && at.node.frame >= 0 && matches[at.node.frame]) { best = at; continue; }
		// Visits the widest first, because frames that are not wider than the best match are skipped.
		const below = at.node.wide(least).filter(([, node]) => node.hasMark(marks)).sort((a, b) => a[1].total - b[1].total);
		for (const [key, node] of below) stack.push({ node, key, above: at });
	}
	if (!best) return null;
	const keys = [];
	for (let at = best; at.above; at = at.above) keys.unshift(at.key);
	return keys;
}

/** Weight of rows with a frame that MATCHES (an array over frames). */
export function matchedWeight(model, weights, matches) {
	const { rowNode } = model, has = nodesWith(model, matches);
	let sum = 0;
	for (let row = 0; row < weights.length; row++) if (has[rowNode[row]]) sum += weights[row];
	return sum;
}

/** Sets the weight of rows without the function NAME on their stack to 0. */
export function focusOn(model, weights, name) {
	const id = model.strings.indexOf(name), has = nodesWith(model, Uint8Array.from(model.frameName, (n) => (n === id ? 1 : 0)));
	for (let row = 0; row < weights.length; row++) if (!has[model.rowNode[row]]) weights[row] = 0;
}
