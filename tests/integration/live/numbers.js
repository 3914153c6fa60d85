// SPDX-License-Identifier: Apache-2.0
// Compares the page's trees, table and sums of windows with the same counted plainly, stack by stack,
// over made-up stacks with much recursion. Returns the differences.
async () => {
	const [{ Model }, { buildTree, buildSandwich, focusOn, matchedWeight }, { toFolded }] =
		await Promise.all([import("/model.js"), import("/tree.js"), import("/keep.js")]);
	let seed = 12345;
	const draw = (n) => { seed = (Math.imul(seed, 1103515245) + 12345) >>> 0; return (seed >>> 8) % n; };
	const wrong = [];
	const same = (what, ours, theirs) => { if (ours !== theirs && wrong.length < 20) wrong.push(`${what}: ${ours}, by hand ${theirs}`); };

	function makeModel() {
		const m = new Model(), known = new Map();
		m.types = ["native", "kernel", "go"];
		for (let i = 0; i < 12; i++) m.strings.push("Name" + i);
		for (let f = 0; f < 20; f++) m.addFrame(f % 9, 9 + (f % 3), draw(3)); // names in several frames
		m.addNode(0, 0);
		// Sets of labels: none, left out, {Name0=Name1}, {Name0=Name2}, {Name3=Name1, Name0=Name2}.
		for (const [distance, key, value] of [[0, 0, 0], [0, 0, 0], [2, 0, 1], [3, 0, 2], [1, 3, 1]]) m.addLabels(distance, key, value);
		for (let g = 0; g < 6; g++)
			m.addGroup({ pid: g % 3, process: g % 3, thread: g, container: 0, containerName: 0, pod: 0, namespace: 0, kind: g === 5 ? 1 : 0, labels: g % 5, period: 10 });
		for (let row = 0; row < 400; row++) {
			let node = 0;
			for (let depth = draw(12); depth >= 0; depth--) {
				const f = draw(20), key = node + ":" + f;
				if (!known.has(key)) {
					known.set(key, m.nodeParent.length);
					m.addNode(m.nodeParent.length - node, f);
				}
				node = known.get(key);
			}
			m.addRow(draw(6), node);
		}
		return m;
	}

	const nameOf = (m, f) => m.strings[m.frameName[f]];
	const stackOf = (m, row, { types, names, recursion }) => {
		const stack = [];
		for (let node = m.rowNode[row]; node > 0; node = m.nodeParent[node]) {
			const f = m.nodeFrame[node];
			if (!types.has(m.frameType[f]) && !names.has(nameOf(m, f))) stack.unshift(f);
		}
		// Of a function that calls itself directly, the outermost frame stays.
		return recursion ? stack.filter((f, i) => !i || nameOf(m, stack[i - 1]) !== nameOf(m, f)) : stack;
	};
	function put(tree, path, w, b) {
		let at = tree;
		for (const key of ["", ...path]) {
			if (key !== "") {
				if (!at.children.has(key)) at.children.set(key, { total: 0, self: 0, base: 0, children: new Map() });
				at = at.children.get(key);
			}
			at.total += w;
			at.base += b;
		}
		at.self += w;
	}
	const empty = () => ({ total: 0, self: 0, base: 0, children: new Map() });
	function compare(what, ours, theirs, grouped) {
		for (const key of ["total", "base", ...(grouped ? [] : ["self"])]) same(`${what} ${key}`, ours[key], theirs[key]);
		const all = ours.children || new Map();
		same(what + " children", [...all.keys()].sort().join(), [...theirs.children.keys()].sort().join());
		for (const [key, child] of theirs.children) if (all.has(key)) compare(`${what}/${key}`, all.get(key), child);
		// Frames asked for by width are those asked for by name, in whatever order.
		same(what + " wide", ours.wide(theirs.total / 3).length, [...theirs.children.values()].filter((c) => c.total >= theirs.total / 3).length);
	}

	const nothing = { types: new Set(), names: new Set(), recursion: false };
	for (let round = 0; round < 24; round++) {
		const hidden = {
			types: new Set([[], [1], [0, 2], [1, 2]][round % 4]),
			names: new Set(round % 8 < 4 ? [] : ["Name" + (round + 1) % 9, "no such function"]), recursion: round >= 12,
		};
		const m = makeModel(), group = ["", "process", "thread"][round % 3];
		for (let r = 0; r < 400; r++) m.totals[r] = draw(4);
		const weights = m.rowWeights(m.counts(0).counts, { kind: "0", process: round % 2 ? "pid:1" : "" });
		const base = round % 2 ? Float64Array.from(weights, () => draw(3)) : null, tree = empty(), table = new Map();
		const chosen = "Name" + (round % 9), callers = empty(), callees = empty();
		const folded = new Map();
		let found = 0;
		for (let row = 0; row < 400; row++) {
			const g = m.groups[m.rowGroup[row]], of = g.kind === 0 && (round % 2 === 0 || g.pid === 1);
			same("weight", weights[row], of ? m.totals[row] * 10 : 0);
			const w = weights[row], b = base ? base[row] : 0, stack = stackOf(m, row, hidden);
			if (!w && !b) continue;
			put(tree, [...(group ? ["g" + m.groupLabel(g, group)] : []), ...stack], w, b);
			const line = [m.strings[g.process], ...stack.map((f) => nameOf(m, f))].join(";");
			if (w) folded.set(line, (folded.get(line) ?? 0) + w / 10);
			for (const name of new Set(stack.map((f) => nameOf(m, f)))) {
				const e = table.get(name) || { self: 0, total: 0, base: 0 };
				table.set(name, e);
				e.total += w;
				e.base += b;
			}
			if (stack.length) table.get(nameOf(m, stack[stack.length - 1])).self += w;
			const names = stack.map((f) => nameOf(m, f)), first = names.indexOf(chosen), last = names.lastIndexOf(chosen);
			if (w && first >= 0) {
				put(callers, stack.slice(0, first).reverse(), w, 0);
				put(callees, stack.slice(last + 1), w, 0);
			}
			if (stackOf(m, row, nothing).some((f) => f % 5 === 0)) found += w;
		}
		const ours = buildTree(m, weights, base, hidden, group), sandwich = buildSandwich(m, weights, hidden, chosen);
		compare(`round ${round}`, ours.tree, tree, group);
		same("functions", ours.table.map((e) => e.name).sort().join(), [...table.keys()].sort().join());
		for (const e of ours.table)
			for (const key of ["self", "total", "base"]) same(`round ${round} ${e.name} ${key}`, e[key], table.get(e.name)?.[key]);
		same(`folded ${round}`, toFolded(m, weights, hidden), [...folded].map(([line, n]) => `${line} ${n}\n`).sort().join(""));
		compare(`callers ${round}`, sandwich.callers, callers);
		compare(`callees ${round}`, sandwich.callees, callees);
		// Only stacks that have the function, hidden or not.
		const focused = Float64Array.from(weights), sum = (list) => list.reduce((a, b) => a + b, 0);
		focusOn(m, focused, chosen);
		const with_ = [...weights.keys()].filter((row) => stackOf(m, row, nothing).some((f) => nameOf(m, f) === chosen));
		same(`focus ${round}`, sum(focused), sum(with_.map((row) => weights[row])));
		same("found", matchedWeight(m, weights, Uint8Array.from(m.frameName, (n, f) => (f % 5 === 0 ? 1 : 0))), found);
	}

	// By labels, and by traces.
	{
		const m = makeModel(), cpu = { kind: "0" }, labels = [[], [], ["Name0=Name1"], ["Name0=Name2"], ["Name3=Name1", "Name0=Name2"]];
		for (let r = 0; r < 400; r++) m.totals[r] = 1 + draw(4);
		const sum = (filter) => m.rowWeights(m.counts(0).counts, { ...cpu, ...filter }).reduce((a, b) => a + b, 0);
		const byHand = (wanted) => m.rowGroup.reduce((a, g, r) => a + (g < 5 && wanted(g) ? m.totals[r] * 10 : 0), 0);
		for (const label of ["Name0=Name1", "Name0=Name2", "Name3=Name1", "Name3=Name2"])
			same("label " + label, sum({ label }), byHand((g) => labels[g % 5].includes(label)));
		const tree = buildTree(m, m.rowWeights(m.counts(0).counts, cpu), null, nothing, "label:Name0").tree;
		const names = ["[no Name0]", "[labels left out]", "Name0=Name1", "Name0=Name2", "Name0=Name2"];
		for (const name of new Set(names)) same("group " + name, tree.child("g" + name)?.total, byHand((g) => names[g % 5] === name));
		const ids = ["00ab", "00ac", "17ff"], all = [];
		for (let i = 0; i < 40; i++) {
			const traces = { rows: [], values: [], ids: [] };
			for (let k = 0; k < 50; k++) { traces.rows.push(draw(400)); traces.values.push(1 + draw(3)); traces.ids.push(ids[draw(3)]); }
			m.addWindow({ start: 1e12 + i * 1000, duration: 1000, rows: new Uint32Array(0), values: new Float64Array(0), traces }, true);
			traces.rows.forEach((row, k) => all.push({ row, value: traces.values[k], id: traces.ids[k], ago: 39 - i }));
		}
		for (const [prefix, seconds] of [["00", 0], ["00ab", 10], ["17ff", 60], ["1", 10], ["18", 0]]) {
			const found = new Float64Array(400), { counts, ms } = m.countsOfTrace(prefix, seconds);
			for (const t of all) if (t.id.startsWith(prefix) && (!seconds || t.ago < seconds)) found[t.row] += t.value;
			same(`trace ${prefix} ${seconds} s`, counts.join(), found.join());
			same(`trace ${prefix} ${seconds} s ms`, ms, Math.min(seconds || 40, 40) * 1000);
		}
	}

	// The sums that are kept, when windows are of different lengths, when some are missing, and when the clock is set back.
	const m = makeModel();
	for (let i = 0, start = 1e12; i < 700; i++) {
		const duration = [1000, 1000, 20, 5000, 1000, 30000][draw(6)], rows = Uint32Array.from([...new Array(400).keys()].filter(() => draw(3) === 0));
		m.addWindow({ start, duration, rows, values: Float64Array.from(rows, () => draw(9)) }, true);
		start += i === 300 ? -7000 : duration + (draw(40) === 0 ? draw(40000) : i === 500 ? 400000 : 0);
		for (const seconds of [10, 60, 300]) {
			const sum = new Float64Array(400), now = m.counts(seconds), end = m.end();
			let ms = 0;
			for (const w of m.windows) {
				const middle = w.start + w.duration / 2;
				if (middle >= end || middle < end - seconds * 1000) continue;
				ms += w.duration;
				w.rows.forEach((row, k) => { sum[row] += w.values[k]; });
			}
			same(`window ${i} ${seconds} s ms`, now.ms, ms);
			same(`window ${i} ${seconds} s`, now.counts.join(), sum.join());
		}
	}
	return wrong;
}
