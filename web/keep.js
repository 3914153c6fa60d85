// Profiles that the page makes itself: while it is paused, because the agent does not have the paused time any more,
// and while frames or stacks are left out, because the agent cannot leave them out. Folded stacks, and pprof
// (github.com/google/pprof, proto/profile.proto). No DOM here.

import { hiddenNodes } from "./tree.js";

/** Frames of a row's stack, the outermost first, without the nodes that HIDE marks. */
function stackOf(model, row, hide) {
	const stack = [];
	for (let node = model.rowNode[row]; node > 0; node = model.nodeParent[node]) if (!hide[node]) stack.push(model.nodeFrame[node]);
	return stack.reverse();
}
function* rowsWith(weights) { for (let row = 0; row < weights.length; row++) if (weights[row] > 0) yield row; }
const countOf = (model, row, weight) => Math.round(weight / model.weight(model.groups[model.rowGroup[row]]));

/** Folded stacks with counts; WALL: with ns, on and off CPU. HIDDEN: the frames that are left out, see hiddenNodes(). */
export function toFolded(model, weights, hidden, wall = false) {
	const { hide } = hiddenNodes(model, hidden), lines = new Map(), clean = (name) => name.replaceAll(";", ":").replace(/\s+/g, " ");
	for (const row of rowsWith(weights)) {
		const names = [model.strings[model.groups[model.rowGroup[row]].process], ...stackOf(model, row, hide).map((f) => model.nameOf(f))];
		const line = names.map((name) => clean(name || "[unknown]")).join(";");
		lines.set(line, (lines.get(line) ?? 0) + (wall ? Math.round(weights[row]) : countOf(model, row, weights[row])));
	}
	return [...lines].sort((a, b) => (a[0] < b[0] ? -1 : 1)).map(([line, n]) => `${line} ${n}\n`).join("");
}

/** A protobuf message. Numbers are not negative and below 2^53. */
class Message {
	constructor() { this.bytes = []; }
	varint(n) {
		for (; n >= 128; n = Math.floor(n / 128)) this.bytes.push(n % 128 + 128);
		this.bytes.push(n);
		return this;
	}
	number(field, n) { return n ? this.varint(field * 8).varint(n) : this; }
	block(field, bytes) {
		this.varint(field * 8 + 2).varint(bytes.length);
		for (const b of bytes) this.bytes.push(b);
		return this;
	}
	message(field, message) { return this.block(field, message.bytes); }
	packed(field, numbers) { return this.message(field, numbers.reduce((m, n) => m.varint(n), new Message())); }
}

/** A pprof profile, uncompressed. START and LENGTH in ms; HIDDEN as for toFolded(). */
export function toPprof(model, weights, hidden, start, length, kind) {
	const { hide } = hiddenNodes(model, hidden), strings = new Map([["", 0]]), frames = new Map(), utf8 = new TextEncoder(), out = new Message();
	const text = (s) => { if (!strings.has(s)) strings.set(s, strings.size); return strings.get(s); };
	const type = (name, unit) => new Message().number(1, text(name)).number(2, text(unit));
	const probe = kind.startsWith("probe:") ? kind.slice(6) : "", unit = probe ? "count" : "nanoseconds";
	const what = probe || { 0: "cpu", 1: "off_cpu", wall: "wall" }[kind];
	out.message(1, type("samples", "count")).message(1, type(what, unit));
	let period = 0;
	for (const row of rowsWith(weights)) {
		const group = model.groups[model.rowGroup[row]], sample = new Message();
		const ids = stackOf(model, row, hide).reverse().map((f) => { if (!frames.has(f)) frames.set(f, frames.size + 1); return frames.get(f); });
		sample.packed(1, ids).packed(2, [countOf(model, row, weights[row]), Math.round(weights[row])]);
		for (const key of ["process", "thread", "container", "pod", "namespace"])
			if (model.strings[group[key]]) sample.message(3, new Message().number(1, text(key)).number(2, text(model.strings[group[key]])));
		for (const [key, value] of model.labelsOf(group)) sample.message(3, new Message().number(1, text(key)).number(2, text(value)));
		sample.message(3, new Message().number(1, text("pid")).number(3, group.pid));
		out.message(2, sample);
		period ||= group.period;
	}
	for (const [f, id] of frames) {
		out.message(4, new Message().number(1, id).message(4, new Message().number(1, id)));
		out.message(5, new Message().number(1, id).number(2, text(model.nameOf(f))).number(4, text(model.strings[model.frameFile[f]])));
	}
	const periodType = type(what, unit);
	for (const s of strings.keys()) out.block(6, utf8.encode(s));
	out.number(9, start * 1e6).number(10, length * 1e6).message(11, periodType).number(12, period);
	return Uint8Array.from(out.bytes);
}

export async function gzip(bytes) {
	return new Response(new Blob([bytes]).stream().pipeThrough(new CompressionStream("gzip"))).blob();
}
