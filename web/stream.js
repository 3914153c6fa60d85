// Reads the messages of /api/stream (docs/live.md) into a model. Does not depend on the page.

const utf8 = new TextDecoder();

/** Reads one message; numbers are varints of at most 53 bits. */
class Reader {
	constructor(bytes) { this.bytes = bytes; this.at = 0; }
	number() {
		let value = 0, scale = 1;
		for (;;) {
			if (this.at >= this.bytes.length) throw new Error("message too short");
			const byte = this.bytes[this.at++];
			value += (byte & 0x7f) * scale;
			if (byte < 0x80) return value;
			scale *= 128;
		}
	}
	string() {
		const n = this.number(), from = this.at;
		this.at += n;
		if (this.at > this.bytes.length) throw new Error("message too short");
		return utf8.decode(this.bytes.subarray(from, this.at));
	}
	hex(n) {
		const from = this.at;
		this.at += n;
		if (this.at > this.bytes.length) throw new Error("message too short");
		return Array.from(this.bytes.subarray(from, this.at), (b) => b.toString(16).padStart(2, "0")).join("");
	}
}

const HELLO = 0, TOTALS = 1, PAST = 2, WINDOW = 3;

function readTables(r, model) {
	for (let n = r.number(); n > 0; n--) model.strings.push(r.string());
	for (let n = r.number(); n > 0; n--) model.addFrame(r.number(), r.number(), r.number());
	for (let n = r.number(); n > 0; n--) model.addNode(r.number(), r.number());
	for (let n = r.number(); n > 0; n--) model.addLabels(r.number(), r.number(), r.number());
	for (let n = r.number(); n > 0; n--)
		model.addGroup({
			pid: r.number(), process: r.number(), thread: r.number(), container: r.number(),
			containerName: r.number(), pod: r.number(), namespace: r.number(), kind: r.number(),
			labels: r.number(), period: r.number(),
		});
	for (let n = r.number(); n > 0; n--) model.addRow(r.number(), r.number());
}

/** Rows ascending, and their values, in typed arrays. */
function readCounts(r) {
	const n = r.number(), rows = new Uint32Array(n), values = new Float64Array(n);
	let most = 0;
	for (let i = 0, row = 0; i < n; i++) {
		row += r.number();
		rows[i] = row;
		values[i] = r.number();
		if (values[i] > most) most = values[i];
	}
	// Five minutes of windows are kept. Counts of samples fit into Uint16, a quarter of the size; ns off CPU do not.
	return { rows, values: most < 65536 ? new Uint16Array(values) : values };
}

/** The rows of a window that belong to a trace: row, value and trace id. */
function readTraces(r) {
	const n = r.number(), rows = new Uint32Array(n), values = new Float64Array(n), ids = new Array(n);
	for (let i = 0; i < n; i++) {
		rows[i] = r.number();
		values[i] = r.number();
		ids[i] = r.hex(16);
	}
	return { rows, values, ids };
}

function readMessage(bytes, model) {
	const kind = bytes[0], r = new Reader(bytes.subarray(1));
	if (kind === HELLO) {
		if (r.number() !== 2) throw new Error("the agent speaks another version: reload the page");
		model.reset();
		model.since = r.number();
		model.interval = r.number();
		model.host = r.string();
		for (let n = r.number(); n > 0; n--) model.types.push(r.string());
	} else if (kind === TOTALS) {
		model.since = r.number();
		model.skipped = r.number();
		readTables(r, model);
		model.setTotals(readCounts(r));
	} else if (kind === PAST || kind === WINDOW) {
		const w = { seq: r.number(), start: r.number(), duration: r.number() };
		readTables(r, model);
		model.addWindow({ ...w, ...readCounts(r), traces: readTraces(r) }, kind === WINDOW);
	}
}

/** Updates MODEL until SIGNAL aborts. Calls told("live"), or told("token") when one is needed; changed() after messages. */
export async function follow(model, token, signal, told, changed) {
	const headers = token() ? { Authorization: "Bearer " + token() } : {};
	const response = await fetch("api/stream", { headers, signal, cache: "no-store" });
	if (response.status === 401) { told("token"); return; }
	if (!response.ok) throw new Error((await response.text()).trim() || `HTTP ${response.status}`);
	told("live");
	const reader = response.body.getReader();
	let held = new Uint8Array(0);
	for (;;) {
		const { done, value } = await reader.read();
		if (done) throw new Error("the agent ended the stream");
		model.received += value.length;
		let bytes = value;
		if (held.length) {
			bytes = new Uint8Array(held.length + value.length);
			bytes.set(held);
			bytes.set(value, held.length);
		}
		let at = 0;
		while (bytes.length - at >= 4) {
			const n = new DataView(bytes.buffer, bytes.byteOffset + at, 4).getUint32(0, true);
			if (bytes.length - at - 4 < n) break;
			readMessage(bytes.subarray(at + 4, at + 4 + n), model);
			at += 4 + n;
		}
		held = bytes.slice(at);
		if (at) changed();
	}
}
