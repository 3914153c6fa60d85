// The agent's data: tables that only grow, totals, and the windows of the last five minutes. Filters and times turn
// them into weights of rows; tree.js makes trees and the table of functions of these. No DOM here.

const KEEP_MS = 305000;
/** The lengths of time, in seconds, that the page offers: their sums are updated as windows come and go. */
const SPANS = [10, 60, 300];

/** The sum of the windows of the last SECONDS: new windows are added, old ones subtracted. */
class Span {
	constructor(seconds) {
		this.seconds = seconds;
		this.counts = new Float64Array(1024);
		this.ms = this.first = 0; // first: the oldest window in the sum, by its number since the connection
	}

	come(w, rows, windows, gone) {
		if (this.counts.length < rows) {
			const grown = new Float64Array(rows * 2);
			grown.set(this.counts);
			this.counts = grown;
		}
		this.apply(w, 1);
		const oldest = w.start + w.duration - this.seconds * 1000;
		while (this.first < gone + windows.length && isBefore(windows[this.first - gone], oldest)) this.go(windows[this.first - gone]);
	}
	go(w) {
		this.apply(w, -1);
		this.first++;
	}
	apply({ rows, values, duration }, sign) {
		const { counts } = this;
		for (let i = 0; i < rows.length; i++) counts[rows[i]] += sign * values[i];
		this.ms += sign * duration;
	}
}

/** Whether the middle of window W is before TIME. */
function isBefore(w, time) { return w.start + w.duration / 2 < time; }

/** The set that stands for labels for which the agent had no room. */
const LABELS_LEFT_OUT = 1;

/** What a group counts: CPU time (0), time off CPU (1), or hits of a probe, whose name is string kind - PROBE. */
export const PROBE = 2;

/** Whether FILTER selects groups of KIND. FILTER.kind: "0", "1", "wall" for both, "probe" for the one named FILTER.probe. */
function isKind(kind, filter, probe) {
	if (kind >= PROBE) return filter.kind === "probe" && probe === filter.probe;
	return filter.kind === "wall" || filter.kind === String(kind);
}

export class Model {
	constructor() { this.received = this.born = 0; this.reset(); }

	reset() {
		this.born++; // indices into the tables have a new meaning from here on
		this.strings = [];
		this.types = [];
		this.frameName = []; this.frameFile = []; this.frameType = [];
		this.nodeParent = []; this.nodeFrame = [];
		this.nodeAgain = []; // 1: one of its callers has the same name
		this.lowered = [];   // strings in lower case, made when a search needs them
		this.labelsRest = []; this.labelsKey = []; this.labelsValue = []; // sets: one label, and the index of the set of the others
		this.groups = [];
		this.rowGroup = []; this.rowNode = [];
		this.totals = new Float64Array(1024);
		this.windows = []; this.gone = 0; // gone: how many windows were dropped as too old
		this.spans = SPANS.map((seconds) => new Span(seconds));
		this.disorder = -1; // the number of the last window that starts before its predecessor
		this.since = 0; this.interval = 0; this.skipped = 0; this.host = "";
		this.version = (this.version ?? 0) + 1; // changes whenever the data change
	}
	addFrame(name, file, type) { this.frameName.push(name); this.frameFile.push(file); this.frameType.push(type); }
	addNode(distance, frame) {
		const parent = this.nodeParent.length - distance, name = this.frameName[frame];
		let up = parent;
		while (up > 0 && this.frameName[this.nodeFrame[up]] !== name) up = this.nodeParent[up];
		this.nodeAgain.push(up > 0 ? 1 : 0);
		this.nodeParent.push(parent);
		this.nodeFrame.push(frame);
	}
	nameOf(frame) { return this.strings[this.frameName[frame]]; }
	addLabels(distance, key, value) {
		this.labelsRest.push(this.labelsRest.length - distance);
		this.labelsKey.push(key);
		this.labelsValue.push(value);
	}
	/** [[key, value], ...] of a group. */
	labelsOf(g) {
		const out = [];
		for (let i = g.labels; i > LABELS_LEFT_OUT; i = this.labelsRest[i]) out.push([this.strings[this.labelsKey[i]], this.strings[this.labelsValue[i]]]);
		return out;
	}
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
		for (let i = 0; i < rows.length; i++) this.totals[rows[i]] = values[i];
		this.version++;
	}
	addWindow(w, isNew) {
		const { windows, totals } = this, last = windows[windows.length - 1];
		if (last && w.start < last.start) this.disorder = this.gone + windows.length;
		windows.push(w);
		if (isNew) for (let i = 0; i < w.rows.length; i++) totals[w.rows[i]] += w.values[i];
		for (const span of this.spans) span.come(w, this.rowNode.length, windows, this.gone);
		while (windows[0].start + KEEP_MS < w.start) {
			for (const span of this.spans) if (span.first === this.gone) span.go(windows[0]);
			windows.shift();
			this.gone++;
		}
		this.version++;
	}
	end() { const w = this.windows[this.windows.length - 1]; return w ? w.start + w.duration : this.since; }

	/**
	 * Counts of all rows in [end - seconds, end), or since the start when seconds is 0; and the time covered.
	 * The counts are the model's own: they change when the next window comes.
	 */
	counts(seconds, end = this.end()) {
		const n = this.rowNode.length;
		if (!seconds) return { counts: this.totals.subarray(0, n), ms: Math.max(this.end() - this.since, 0) };
		const span = this.spans.find((s) => s.seconds === seconds);
		// After the clock was set back, windows are not in the order of their times, and the sums are not usable.
		if (span && end === this.end() && this.disorder < this.gone && span.counts.length >= n)
			return { counts: span.counts.subarray(0, n), ms: span.ms };
		const out = new Float64Array(n);
		let ms = 0;
		for (const w of this.windows) {
			if (!isBefore(w, end) || isBefore(w, end - seconds * 1000)) continue;
			ms += w.duration;
			for (let i = 0; i < w.rows.length; i++) out[w.rows[i]] += w.values[i];
		}
		return { counts: out, ms };
	}

	/** As counts(), for the traces whose id begins with PREFIX. SECONDS 0: all windows that are here, not since the start. */
	countsOfTrace(prefix, seconds, end = this.end()) {
		const out = new Float64Array(this.rowNode.length);
		let ms = 0;
		for (const w of this.windows) {
			if (!isBefore(w, end) || (seconds && isBefore(w, end - seconds * 1000))) continue;
			ms += w.duration;
			this.eachOfTrace(w, prefix, (row, value) => { out[row] += value; });
		}
		return { counts: out, ms };
	}
	eachOfTrace(w, prefix, call) {
		const { rows, values, ids } = w.traces;
		for (let i = 0; i < ids.length; i++) if (ids[i].startsWith(prefix)) call(rows[i], values[i], ids[i]);
	}

	/** A copy that keeps these tables and windows when a new connection replaces them: for the picture shown until then. */
	ofThisConnection() { return Object.assign(Object.create(Model.prototype), this); }

	/**
	 * A copy of the current state that later windows do not change. The tables are shared, because their entries
	 * never change and reset() makes new tables; sums are copied.
	 */
	snapshot() {
		const held = this.ofThisConnection();
		held.totals = this.totals.slice(0, this.rowNode.length);
		held.windows = this.windows.slice();
		held.spans = this.spans.map((span) => Object.assign(Object.create(Span.prototype), span, { counts: span.counts.slice() }));
		return held;
	}

	/** What one count of GROUP stands for: the period, in ns, of a CPU sample; 1 for ns off CPU and hits of a probe. */
	weight(group) { return group.kind === 0 ? group.period : 1; }

	/** One byte for each group: whether FILTER selects it, by process (filterProcess()), thread, container, ... */
	selected(filter) {
		const ok = new Uint8Array(this.groups.length);
		const text = (i) => this.strings[i];
		this.groups.forEach((g, i) => {
			ok[i] = isKind(g.kind, filter, g.kind < PROBE ? "" : text(g.kind - PROBE)) &&
				(!filter.process || filterProcess(filter.process, g.pid, text(g.process))) &&
				(!filter.thread || text(g.thread) === filter.thread) &&
				(!filter.namespace || text(g.namespace) === filter.namespace) &&
				(!filter.pod || text(g.pod) === filter.pod) &&
				(!filter.container || text(g.container) === filter.container) &&
				(!filter.label || this.labelsOf(g).some((l) => l.join("=") === filter.label)) ? 1 : 0;
		});
		return ok;
	}

	/** The weight of one count of each group; 0 for groups that FILTER does not select. */
	factors(filter) {
		const ok = this.selected(filter);
		return Float64Array.from(this.groups, (g, i) => (ok[i] ? this.weight(g) : 0));
	}

	/** The weights of rows, COUNTS times factors(): ns, or hits of a probe. */
	rowWeights(counts, filter) {
		const factor = this.factors(filter), out = new Float64Array(counts.length), { rowGroup } = this;
		for (let i = 0; i < counts.length; i++) out[i] = counts[i] * factor[rowGroup[i]];
		return out;
	}

	/** One byte for each string: whether it contains TEXT, in lower case, or matches TEXT if that is a RegExp. */
	containing(text) {
		const { strings, lowered } = this, out = new Uint8Array(strings.length);
		if (text instanceof RegExp) {
			for (let i = 0; i < out.length; i++) out[i] = text.test(strings[i]) ? 1 : 0;
			return out;
		}
		while (lowered.length < strings.length) lowered.push(strings[lowered.length].toLowerCase());
		for (let i = 0; i < out.length; i++) out[i] = lowered[i].includes(text) ? 1 : 0;
		return out;
	}

	groupLabel(g, by) {
		const text = (i) => this.strings[i];
		if (by === "name") return text(g.process) || "[no name]";
		if (by === "process") return text(g.process) + (g.pid ? ` (${g.pid})` : "");
		if (by === "thread") return text(g.thread) || "[no name]";
		if (by === "container") return containerLabel(this, g);
		if (by.startsWith("label:")) return this.labelGroup(g, by.slice(6));
		return "";
	}
	labelGroup(g, key) {
		if (g.labels === LABELS_LEFT_OUT) return "[labels left out]";
		const label = this.labelsOf(g).find(([k]) => k === key);
		return label ? `${key}=${label[1]}` : `[no ${key}]`;
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
