// The table of functions: selects the first entries, and reuses its rows with new texts.

import { colourOf, labelOf } from "./flame.js";

export const percent = (part, whole) => (whole > 0 ? (100 * part / whole).toFixed(part / whole < 0.1 ? 2 : 1) + "%" : "0%");

const ORDERS = {
	name: (a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0), self: (a, b) => b.self - a.self,
	total: (a, b) => b.total - a.total, change: (a, b) => Math.abs(b.total - b.base) - Math.abs(a.total - a.base),
};

/** The first N of ENTRIES by an order, without sorting the rest. */
function firstOf(entries, n, order) {
	let best = [];
	for (const e of entries) {
		if (best.length >= n && order(e, best[n - 1]) >= 0) continue;
		best.push(e);
		// Until the next cut, best[n - 1] is the limit beyond which entries are skipped.
		if (best.length === n || best.length >= 2 * n) best = best.sort(order).slice(0, n);
	}
	return best.sort(order).slice(0, n);
}

/** Sets KEY only if VALUE differs: the browser lays out again even for the same value. */
function set(object, key, value) { if (object[key] !== value) object[key] = value; }

class Row {
	constructor() {
		const make = (tag, parent, className) => {
			const e = document.createElement(tag);
			if (className) e.className = className;
			parent?.append(e);
			return e;
		};
		this.element = make("tr");
		const name = make("td", this.element, "name");
		this.mark = make("i", name);
		this.button = make("button", name);
		this.button.type = "button";
		this.numbers = [0, 1, 2].map(() => make("td", this.element, "number"));
		this.texts = [this.button, ...this.numbers].map((e) => e.appendChild(document.createTextNode("")));
		this.numbers[2].remove(); // the column exists only while two times are compared
	}

	show(e, type, total, diff, match) {
		const { element, mark, button, texts, numbers } = this;
		const change = diff ? (e.total >= e.base ? "+" : "−") + percent(Math.abs(e.total - e.base), total) : "";
		[e.name, percent(e.self, total), percent(e.total, total), change].forEach((text, i) => set(texts[i], "data", text));
		if (diff !== Boolean(numbers[2].parentElement)) diff ? element.append(numbers[2]) : numbers[2].remove();
		set(button, "title", `${e.name} · ${labelOf(type)} · ${e.file}`);
		if (this.type !== type) mark.style.background = colourOf(type);
		this.type = type;
		set(element.dataset, "name", e.name);
		set(element.dataset, "self", String(Math.round(e.self)));
		set(element.dataset, "total", String(Math.round(e.total)));
		set(element, "className", match ? "match" : "");
	}
}

export class Table {
	constructor(body) {
		this.body = body;
		this.rows = [];
	}

	/**
	 * Shows the first N of ENTRIES by the column SORT ("-": reversed). HIT: null, or a byte for each string; entries whose
	 * name or file has a hit come first.
	 */
	show(entries, n, { types, total, diff, sort, hit }) {
		const matches = (e) => (hit && (hit[e.id] || hit[e.fileId]) ? 1 : 0), order = ORDERS[sort.replace("-", "")];
		const by = sort.startsWith("-") ? (a, b) => order(b, a) : order;
		const ordered = firstOf(entries, n, hit ? (a, b) => matches(b) - matches(a) || by(a, b) : by);
		const focus = this.focused();
		while (this.rows.length > ordered.length) this.rows.pop().element.remove();
		for (const [i, e] of ordered.entries()) {
			if (i === this.rows.length) {
				this.rows.push(new Row());
				this.body.append(this.rows[i].element);
			}
			this.rows[i].show(e, types[e.type], total, diff, matches(e));
		}
		// The keyboard focus stays on its function, not on its row.
		if (focus !== this.focused()) this.rows.find((r) => r.element.dataset.name === focus)?.button.focus();
	}
	focused() {
		const row = document.activeElement?.closest("tr");
		return row && this.body.contains(row) ? row.dataset.name : undefined;
	}
}
