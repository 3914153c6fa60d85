// Draws a tree on a canvas: layout, colours, mouse, touch and keys. One instance for each canvas.

import { byName, widestMatch } from "./tree.js";

export const ROW = 18;
const MIN_WIDTH = 0.4; // pixels; narrower frames are drawn together, as one grey block in their place
const MAX_DEPTH = 500; // rows below the zoomed frame; deeper frames are one grey block
const MAX_PIXELS = 32000; // browsers draw nothing on a canvas that is higher

// Okabe and Ito's colours (jfly.uni-koeln.de/color) for the most common types. The others were found by a search:
// every two colours are 10 or more apart (CIEDE2000), for colour-blind people of all kinds too
// (tests/integration/live/test_colours.py).
const COLOURS = {
	native: "#e69f00", kernel: "#d55e00", go: "#56b4e9", rust: "#cc79a7", cpython: "#009e73", v8js: "#f0e442",
	jvm: "#0072b2", ruby: "#993333", php: "#33ffbb", perl: "#7777ff", dotnet: "#99bb77", beam: "#335577",
	luajit: "#3333dd", "abort-marker": "#5f666e",
};
/** Names of the types for people; other types are shown by their own name. */
const LABELS = {
	go: "Go", rust: "Rust", cpython: "Python", v8js: "JavaScript", jvm: "JVM", ruby: "Ruby", php: "PHP", perl: "Perl", dotnet: ".NET",
	beam: "BEAM", luajit: "LuaJIT", "abort-marker": "incomplete",
};
export function labelOf(type) { return LABELS[type] || type; }
export const GROUP_COLOUR = "#c9ced6";
const SMALL_COLOUR = "#9aa1ab";
export function colourOf(type) { return COLOURS[type] || GROUP_COLOUR; }

const DARKEST = 0.93, LIGHTEST = 1.05; // the shades of a type's colour, by the frame's name
function shade(hex, name) {
	let h = 0;
	for (let i = 0; i < name.length && i < 24; i++) h = (h * 31 + name.charCodeAt(i)) | 0;
	const f = DARKEST + (Math.abs(h) % 100) / 100 * (LIGHTEST - DARKEST);
	const part = (at) => Math.min(255, Math.round(parseInt(hex.slice(at, at + 2), 16) * f));
	return `rgb(${part(1)},${part(3)},${part(5)})`;
}

/** Blue: less than in the base; orange: more. SHARE is the change as a part of the whole. */
export function diffColour(share) {
	const x = Math.max(-1, Math.min(1, share * 8)), t = Math.sqrt(Math.abs(x));
	const to = x < 0 ? [0, 114, 178] : [213, 94, 0];
	return `rgb(${to.map((c) => Math.round(235 + (c - 235) * t)).join(",")})`;
}
/** The colour of text that can be read on COLOUR, "#rrggbb" or "rgb(r,g,b)": black or white. */
export function inkOn(colour) {
	const parts = colour[0] === "#" ? [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16)) : colour.match(/\d+/g).map(Number);
	// The relative luminance of WCAG 2. At 0.18 black and white have the same contrast, 4.6 to 1; dark grey would have less than 4.5.
	const [r, g, b] = parts.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
	return 0.2126 * r + 0.7152 * g + 0.0722 * b < 0.18 ? "#ffffff" : "#000000";
}

/** COLOUR for a frame that the search does not match: mixed with 60 % of BACK, the page's background. */
function dimmed(colour, back) {
	const parts = (c) => (c[0] === "#" ? [1, 3, 5].map((at) => parseInt(c.slice(at, at + 2), 16)) : c.match(/\d+/g).map(Number));
	const ground = parts(back);
	return `rgb(${parts(colour).map((c, i) => Math.round(ground[i] + (c - ground[i]) * 0.4)).join(",")})`;
}

/** One block for the callees of PARENT that are too narrow to draw. Its name is made when it is asked for. */
class Small {
	constructor(parent, total, shown) { Object.assign(this, { parent, total, shown, type: -2, frame: -1, base: 0, self: 0 }); }
	get name() { return `${this.parent.wide(0).length - this.shown} small frames`; }
	get label() { return "small"; }
}
/** One block for all callees of PARENT, which is MAX_DEPTH rows below the zoomed frame. */
class Deeper extends Small {
	get name() { return "deeper frames"; }
	get label() { return this.name; }
}

const widths = new Map(); // of characters in the canvas' font
/** TEXT, cut so that it fits ROOM pixels. */
export function fit(g, text, room) {
	let used = 0, cut = 0;
	const width = (c) => { if (!widths.has(c)) widths.set(c, g.measureText(c).width); return widths.get(c); };
	for (let i = 0; i < text.length; i++) {
		used += width(text[i]);
		if (used <= room - width("…")) cut = i + 1;
		if (used > room) return cut ? text.slice(0, cut) + "…" : "";
	}
	return text;
}

/** The keys that lead from the root to a rect. */
function keysOf(rect) {
	const keys = [];
	for (let r = rect; r.above; r = r.above) keys.unshift(r.key);
	return keys;
}

export class Flame {
	/**
	 * options: {types, tip(node, x, y) or tip(null), choose(node), zoomed(line), said(node, depth), missed(), menu(node, x, y)};
	 * said: a frame got the keyboard focus; missed: findNext() found nothing.
	 */
	constructor(canvas, options) {
		this.canvas = canvas;
		this.options = options;
		this.root = null;
		this.zoom = [];       // keys from the root to the zoomed node
		this.focus = null;    // rect with the keyboard focus
		this.rects = [];
		this.icicle = false;
		this.diff = false;
		this.matches = null;
		this.mouse = null;    // its position while it is on the canvas: the tooltip follows what is drawn under it
		this.empty = "No samples here yet.";
		canvas.addEventListener("mousemove", (e) => { this.mouse = { clientX: e.clientX, clientY: e.clientY }; this.hover(); });
		canvas.addEventListener("mouseleave", () => { this.mouse = null; options.tip(null); });
		canvas.addEventListener("click", (e) => this.click(e));
		canvas.addEventListener("contextmenu", (e) => this.menu(e));
		canvas.addEventListener("keydown", (e) => this.key(e));
		this.atEnd = true;    // a flame graph is scrolled to its root, at the bottom, until the user scrolls up
		const box = canvas.parentElement;
		box.addEventListener("scroll", () => {
			this.mouse = null;
			if (box.scrollTop === this.placed) return; // draw() scrolled; the box may have become lower since
			this.atEnd = box.scrollTop + box.clientHeight >= box.scrollHeight - 4;
		}, { passive: true });
		new ResizeObserver(() => this.draw()).observe(box);
	}

	show(root) { this.root = root; this.draw(); }

	/** The zoomed node and its ancestors, as far as the zoomed path still exists. */
	line() {
		const line = [this.root];
		for (const key of this.zoom) {
			const next = line[line.length - 1].child(key);
			if (!next) break;
			line.push(next);
		}
		return line;
	}

	layout(full) {
		this.rects = [];
		if (!this.root) return 0;
		const line = this.line();
		let depth = 0;
		line.slice(0, -1).forEach((node, d) => this.rects.push({ node, d, x: 0, w: full, key: this.zoom[d - 1], above: d ? this.rects[d - 1] : null }));
		const top = line[line.length - 1], d0 = line.length - 1;
		const place = (node, d, x, scale, key, above) => {
			const rect = { node, d, x, w: node.total * scale, key, above };
			this.rects.push(rect);
			depth = Math.max(depth, d);
			let rest = node.total - node.self;
			const last = d - d0 >= MAX_DEPTH, wide = last ? [] : node.wide(MIN_WIDTH / scale).sort((a, b) => byName(a[1], b[1]));
			for (const [k, c] of wide) {
				place(c, d + 1, x, scale, k, rect);
				x += c.total * scale;
				rest -= c.total;
			}
			if (rest * scale < MIN_WIDTH) return;
			const block = last ? new Deeper(node, rest, 0) : new Small(node, rest, wide.length);
			this.rects.push({ node: block, d: d + 1, x, w: rest * scale, key: "small", above: rect });
			depth = Math.max(depth, d + 1);
		};
		if (top.total > 0) place(top, d0, 0, full / top.total, this.zoom[d0 - 1], this.rects[d0 - 1] || null);
		return Math.max(depth, d0) + 1;
	}

	draw() {
		const { canvas } = this, box = canvas.parentElement, full = box.clientWidth;
		if (!full || !this.root) return;
		const height = Math.max(this.layout(full), 3) * ROW + 2, atEnd = this.atEnd;
		const ratio = Math.min(window.devicePixelRatio || 1, 2, MAX_PIXELS / height);
		if (canvas.width !== Math.round(full * ratio) || canvas.height !== Math.round(height * ratio)) {
			canvas.width = Math.round(full * ratio);
			canvas.height = Math.round(height * ratio);
			canvas.style.height = height + "px";
		}
		if (!this.icicle && (atEnd || !this.drawn)) {
			box.scrollTop = box.scrollHeight;
			this.placed = box.scrollTop;
		}
		this.drawn = true;
		const g = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
		g.setTransform(ratio, 0, 0, ratio, 0, 0);
		g.clearRect(0, 0, full, height);
		g.font = "12px system-ui, sans-serif";
		g.textBaseline = "middle";
		this.height = height;
		const highlight = style.getPropertyValue("--accent").trim(), back = style.getPropertyValue("--back").trim();
		for (const rect of this.rects) this.drawRect(g, rect, highlight, back);
		if (!this.root.total) {
			g.fillStyle = style.getPropertyValue("--dim").trim();
			g.fillText(this.empty, 8, ROW);
		}
		this.drawFocus(g, style);
		if (this.mouse) this.hover();
	}

	/** Draws the ring around the frame with the keyboard focus, if the frame still exists. */
	drawFocus(g, style) {
		if (!this.focus) return;
		const path = keysOf(this.focus).join(), depth = this.focus.d, hadTip = this.focus.tip;
		const again = this.rects.find((r) => r.d === depth && keysOf(r).join() === path) || null;
		this.focus = again;
		if (!again) { if (hadTip) this.options.tip(null); return; }
		if (document.activeElement !== this.canvas && !hadTip) return;
		g.strokeStyle = style.getPropertyValue("--text").trim();
		g.lineWidth = 2;
		g.strokeRect(again.x + 1, this.top(again) + 1, Math.max(again.w - 2, 2), ROW - 2);
		if (hadTip && !this.mouse) this.tipOfFocus();
	}

	top(rect) { return this.icicle ? rect.d * ROW + 1 : this.height - (rect.d + 1) * ROW - 1; }

	colour(node) {
		if (this.diff && this.root.total && !(node instanceof Small)) return diffColour((node.total - node.base) / this.root.total);
		if (node instanceof Small) return SMALL_COLOUR;
		return shade(node.type < 0 ? GROUP_COLOUR : colourOf(this.options.types()[node.type]), node.name);
	}

	drawRect(g, rect, highlight, back) {
		const y = this.top(rect), w = Math.max(rect.w - (rect.w > 3 ? 1 : 0), 0.5);
		const hit = this.matches && rect.node.frame >= 0 && this.matches[rect.node.frame];
		const own = this.colour(rect.node), fill = hit ? highlight : this.matches ? dimmed(own, back) : own;
		g.fillStyle = fill;
		g.fillRect(rect.x, y, w, ROW - 1);
		if (rect.w <= 28) return;
		g.fillStyle = inkOn(fill);
		g.fillText(fit(g, rect.node.label ?? rect.node.name, w - 6), rect.x + 4, y + ROW / 2);
	}

	at(event) {
		const box = this.canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
		const d = this.icicle ? Math.floor((y - 1) / ROW) : Math.floor((this.height - 1 - y) / ROW);
		return this.rects.find((r) => r.d === d && x >= r.x && x < r.x + Math.max(r.w, 1)) || null;
	}

	hover() {
		const rect = this.at(this.mouse);
		this.canvas.style.cursor = rect ? "pointer" : "default";
		this.options.tip(rect ? rect.node : null, this.mouse.clientX, this.mouse.clientY);
	}

	click(event) {
		const rect = this.at(event);
		if (!rect) return;
		this.focus = rect;
		this.zoomTo(keysOf(rect.node instanceof Small ? rect.above : rect));
	}

	/** Opens the menu of the frame under the mouse or, after a key, of the frame with the keyboard focus. */
	menu(event) {
		const rect = event.button === 2 ? this.at(event) : this.focus;
		if (!rect || rect.node.frame < 0) return;
		event.preventDefault();
		this.focus = rect;
		const box = this.canvas.getBoundingClientRect();
		this.options.tip(null);
		if (event.button === 2) this.options.menu(rect.node, keysOf(rect), event.clientX, event.clientY);
		else this.options.menu(rect.node, keysOf(rect), box.left + Math.max(rect.x, 0), box.top + this.top(rect) + ROW);
	}

	zoomTo(keys) {
		this.zoom = keys;
		this.draw();
		this.options.zoomed(this.line());
	}

	/** Zooms along NAMES from the root, as far as there are such frames; among callees of one name, to the widest. */
	zoomToNames(names) {
		this.zoom = [];
		for (let node = this.root; node && this.zoom.length < names.length;) {
			const found = node.wide(0).filter(([, c]) => c.name === names[this.zoom.length]).sort((a, b) => b[1].total - a[1].total)[0];
			if (!found) break;
			this.zoom.push(found[0]);
			node = found[1];
		}
	}

	/** The frames on the canvas that the search has found. */
	hits() { return this.rects.filter((r) => r.node.frame >= 0 && this.matches?.[r.node.frame]); }

	/**
	 * Moves the keyboard focus to the next frame that the search has found, or to the previous one (STEP -1). If all of
	 * them are too narrow or too deep to be drawn, zooms to the widest and moves the focus there.
	 */
	findNext(step) {
		const hits = this.hits().sort((a, b) => a.x - b.x || a.d - b.d);
		if (!hits.length) return this.findHidden();
		const at = hits.indexOf(this.focus), next = at < 0 ? (step > 0 ? 0 : hits.length - 1) : (at + step + hits.length) % hits.length;
		this.focusOn(hits[next]);
	}

	findHidden() {
		const line = this.root ? this.line() : [], keys = this.matches && line.length ? widestMatch(line[line.length - 1], this.matches) : null;
		if (!keys) return this.options.missed();
		this.zoomTo([...this.zoom.slice(0, line.length - 1), ...keys]);
		this.focusOn(this.rects[this.zoom.length]);
	}

	focusOn(rect) {
		const box = this.canvas.parentElement, y = this.top(rect);
		this.focus = rect;
		this.mouse = null;
		if (y < box.scrollTop || y + ROW > box.scrollTop + box.clientHeight) box.scrollTop = y - box.clientHeight / 2;
		this.draw();
		if (!this.focus) return;
		this.tipOfFocus();
		this.options.said(this.focus.node, this.focus.d);
	}

	tipOfFocus() {
		const box = this.canvas.getBoundingClientRect();
		this.focus.tip = true;
		this.options.tip(this.focus.node, box.left + this.focus.x, box.top + this.top(this.focus) + ROW);
	}

	key(event) {
		const { rects } = this, now = this.focus || rects[0];
		if (!now) return;
		const up = this.icicle ? "ArrowUp" : "ArrowDown", down = this.icicle ? "ArrowDown" : "ArrowUp";
		let next = null;
		if (event.key === up) next = now.above;
		else if (event.key === down) next = rects.filter((r) => r.above === now).sort((a, b) => b.w - a.w)[0];
		else if (event.key === "ArrowLeft") next = rects.filter((r) => r.d === now.d && r.x < now.x).pop();
		else if (event.key === "ArrowRight") next = rects.find((r) => r.d === now.d && r.x > now.x);
		else if (event.key === "Enter") { this.focus = now; this.zoomTo(keysOf(now.node instanceof Small ? now.above : now)); return event.preventDefault(); }
		else if (event.key === "b") { this.options.choose(now.node); return event.stopPropagation(); }
		else if (event.key === "m") { this.focus = now; this.menu(event); return event.stopPropagation(); }
		else if (event.key === "n" || event.key === "N") { this.findNext(event.key === "n" ? 1 : -1); return event.stopPropagation(); }
		else return;
		event.preventDefault();
		this.focusOn(next || now);
	}
}
