// Draws a tree on a canvas: layout, colours, mouse, touch and keys. One instance for each canvas.

import { byName } from "./tree.js";

export const ROW = 18;
const MIN_WIDTH = 0.4; // pixels; narrower frames are not drawn
const MAX_DEPTH = 500;

// Okabe and Ito's colours (jfly.uni-koeln.de/color) for those that are seen most. The rest were searched for:
// every two are 10 or more apart (CIEDE2000), for colour-blind people of all kinds too
// (tests/integration/live/test_colours.py).
const COLOURS = {
	native: "#e69f00", kernel: "#d55e00", go: "#56b4e9", rust: "#cc79a7", cpython: "#009e73", v8js: "#f0e442",
	jvm: "#0072b2", ruby: "#993333", php: "#33ffbb", perl: "#7777ff", dotnet: "#99bb77", beam: "#335577",
	luajit: "#3333dd", "abort-marker": "#5f666e",
};
/** What the types are called where people read it; the rest is called as it is. */
const LABELS = {
	go: "Go", rust: "Rust", cpython: "Python", v8js: "JavaScript", jvm: "JVM", ruby: "Ruby", php: "PHP", perl: "Perl", dotnet: ".NET",
	beam: "BEAM", luajit: "LuaJIT", "abort-marker": "incomplete",
};
export function labelOf(type) { return LABELS[type] || type; }
export const GROUP_COLOUR = "#c9ced6";
export function colourOf(type) { return COLOURS[type] || GROUP_COLOUR; }

function shade(hex, name) {
	let h = 0;
	for (let i = 0; i < name.length && i < 24; i++) h = (h * 31 + name.charCodeAt(i)) | 0;
	const f = 0.93 + (Math.abs(h) % 100) / 100 * 0.12;
	const part = (at) => Math.min(255, Math.round(parseInt(hex.slice(at, at + 2), 16) * f));
	return `rgb(${part(1)},${part(3)},${part(5)})`;
}

/** Blue: less than in the base; orange: more. SHARE is the change as a part of the whole. */
export function diffColour(share) {
	const x = Math.max(-1, Math.min(1, share * 8)), t = Math.sqrt(Math.abs(x));
	const to = x < 0 ? [0, 114, 178] : [213, 94, 0];
	return `rgb(${to.map((c) => Math.round(235 + (c - 235) * t)).join(",")})`;
}
/** What can be read on this colour, "#rrggbb" or "rgb(r,g,b)". */
export function inkOn(colour) {
	const parts = colour[0] === "#" ? [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16)) : colour.match(/\d+/g).map(Number);
	// The relative luminance of WCAG 2; at 0.18 black and white stand out alike.
	const [r, g, b] = parts.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
	return 0.2126 * r + 0.7152 * g + 0.0722 * b < 0.18 ? "#ffffff" : "#101418";
}

/** The keys that lead from the root to a rect. */
function keysOf(rect) {
	const keys = [];
	for (let r = rect; r.above; r = r.above) keys.unshift(r.key);
	return keys;
}

export class Flame {
	/** options: {types, tip(node, x, y) or tip(null), choose(node), zoomed(path)} */
	constructor(canvas, options) {
		this.canvas = canvas;
		this.options = options;
		this.root = null;
		this.zoom = [];       // keys from the root to the zoomed node
		this.focus = null;    // rect under the keyboard
		this.rects = [];
		this.icicle = false;
		this.diff = false;
		this.matches = null;
		canvas.addEventListener("mousemove", (e) => this.hover(e));
		canvas.addEventListener("mouseleave", () => options.tip(null));
		canvas.addEventListener("click", (e) => this.click(e));
		canvas.addEventListener("keydown", (e) => this.key(e));
		this.atEnd = true;    // a flame graph is looked at from its ground, until someone scrolls up
		const box = canvas.parentElement;
		box.addEventListener("scroll", () => {
			if (box.scrollTop === this.placed) return; // we did it, and since then the box may have become lower
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
			if (d >= MAX_DEPTH) return;
			for (const [k, c] of node.wide(MIN_WIDTH / scale).sort((a, b) => byName(a[1], b[1]))) {
				place(c, d + 1, x, scale, k, rect);
				x += c.total * scale;
			}
		};
		if (top.total > 0) place(top, d0, 0, full / top.total, this.zoom[d0 - 1], this.rects[d0 - 1] || null);
		return Math.max(depth, d0) + 1;
	}

	draw() {
		const { canvas } = this, box = canvas.parentElement, full = box.clientWidth;
		if (!full || !this.root) return;
		const rows = this.layout(full), ratio = Math.min(window.devicePixelRatio || 1, 2);
		const height = Math.max(rows, 3) * ROW + 2, atEnd = this.atEnd;
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
		const glyph = g.measureText("abcdefghijklmnopqrstuvwxyz_0123").width / 31;
		this.height = height;
		const highlight = style.getPropertyValue("--accent").trim();
		for (const rect of this.rects) this.drawRect(g, rect, highlight, glyph);
		if (!this.root.total) {
			g.fillStyle = style.getPropertyValue("--dim").trim();
			g.fillText("No samples here yet.", 8, ROW);
		}
		if (this.focus) {
			const path = keysOf(this.focus).join(), depth = this.focus.d;
			const again = this.rects.find((r) => r.d === depth && keysOf(r).join() === path);
			this.focus = again || null;
			if (again && document.activeElement === canvas) {
				g.strokeStyle = style.getPropertyValue("--text").trim();
				g.lineWidth = 2;
				g.strokeRect(again.x + 1, this.top(again) + 1, Math.max(again.w - 2, 2), ROW - 2);
			}
		}
	}

	top(rect) { return this.icicle ? rect.d * ROW + 1 : this.height - (rect.d + 1) * ROW - 1; }

	colour(node) {
		if (this.diff && this.root.total) return diffColour((node.total - node.base) / this.root.total);
		return shade(node.type < 0 ? GROUP_COLOUR : colourOf(this.options.types()[node.type]), node.name);
	}

	drawRect(g, rect, highlight, glyph) {
		const y = this.top(rect), w = Math.max(rect.w - (rect.w > 3 ? 1 : 0), 0.5);
		const hit = this.matches && rect.node.frame >= 0 && this.matches[rect.node.frame];
		const fill = this.colour(rect.node);
		g.globalAlpha = this.matches && !hit ? 0.45 : 1;
		g.fillStyle = hit ? highlight : fill;
		g.fillRect(rect.x, y, w, ROW - 1);
		if (rect.w > 28) {
			g.fillStyle = inkOn(hit ? highlight : fill);
			g.save();
			g.beginPath();
			g.rect(rect.x, y, w - 2, ROW);
			g.clip();
			const room = Math.floor((w - 6) / glyph), name = rect.node.name;
			g.fillText(name.length > room + 1 ? name.slice(0, Math.max(room - 2, 1)) + "…" : name, rect.x + 4, y + ROW / 2);
			g.restore();
		}
		g.globalAlpha = 1;
	}

	at(event) {
		const box = this.canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
		const d = this.icicle ? Math.floor((y - 1) / ROW) : Math.floor((this.height - 1 - y) / ROW);
		return this.rects.find((r) => r.d === d && x >= r.x && x < r.x + Math.max(r.w, 1)) || null;
	}

	hover(event) {
		const rect = this.at(event);
		this.canvas.style.cursor = rect ? "pointer" : "default";
		this.options.tip(rect ? rect.node : null, event.clientX, event.clientY);
	}

	click(event) {
		const rect = this.at(event);
		if (!rect) return;
		this.focus = rect;
		this.zoomTo(keysOf(rect));
	}

	zoomTo(keys) {
		this.zoom = keys;
		this.draw();
		this.options.zoomed(this.line());
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
		else if (event.key === "Enter") { this.focus = now; this.zoomTo(keysOf(now)); return event.preventDefault(); }
		else if (event.key === "b") { this.options.choose(now.node); return event.stopPropagation(); }
		else return;
		event.preventDefault();
		this.focus = next || now;
		this.draw();
		const box = this.canvas.getBoundingClientRect();
		this.options.tip(this.focus.node, Math.max(box.left + this.focus.x, box.left), box.top + this.top(this.focus) + ROW);
	}
}
