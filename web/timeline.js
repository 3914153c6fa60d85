// The last five minutes as a strip, with a bar of CPU time or the chosen kind for each window. Dragging selects the time
// that is shown, with Shift the time to compare with. Keys change the shown time: arrows move it, Shift and arrows widen
// it, Escape removes it.

const SPAN_MS = 300000, HEIGHT = 44;

/** N, in ns per ns or in hits of a probe per ns, as text for people. */
function rate(n, kind) {
	if (kind === "probe") return `${(n * 1e9).toFixed(n * 1e9 < 10 ? 1 : 0)} hits/s`;
	return `${n.toFixed(2)} ${{ 0: "cores", 1: "threads off CPU", wall: "threads" }[kind]}`;
}

export class Timeline {
	/** options: {chosen(range), base(range)}, ranges [from, to] in ms or null */
	constructor(canvas, options) {
		this.canvas = canvas;
		this.options = options;
		this.sums = new WeakMap(); // of each window, under the filter KEY
		this.key = "";
		this.range = this.base = this.drag = this.model = null;
		canvas.addEventListener("pointerdown", (e) => this.down(e));
		canvas.addEventListener("pointermove", (e) => this.move(e));
		canvas.addEventListener("pointerup", () => this.up());
		canvas.addEventListener("pointercancel", () => { this.drag = null; this.draw(); });
		canvas.addEventListener("keydown", (e) => this.keys(e));
		new ResizeObserver(() => this.draw()).observe(canvas.parentElement);
	}

	show(model, filter, range, base) {
		const key = JSON.stringify([filter, model.born]);
		if (key !== this.key) this.sums = new WeakMap();
		Object.assign(this, { key, model, filter, range, base });
		this.draw();
	}

	/** The mean of window W per ns: a number of cores or threads, or hits of a probe. */
	rate(w, factor) {
		let sum = this.sums.get(w);
		if (sum === undefined) {
			sum = 0;
			const { rowGroup } = this.model, add = (row, value) => { sum += value * factor[rowGroup[row]]; };
			if (this.filter.trace) this.model.eachOfTrace(w, this.filter.trace, add);
			else for (let i = 0; i < w.rows.length; i++) add(w.rows[i], w.values[i]);
			this.sums.set(w, sum);
		}
		return w.duration > 0 ? sum / (w.duration * 1e6) : 0;
	}

	place(time) { return (time - this.from) / SPAN_MS * this.canvas.clientWidth; }
	time(event) {
		const box = this.canvas.getBoundingClientRect();
		return this.from + Math.max(0, Math.min(1, (event.clientX - box.left) / box.width)) * SPAN_MS;
	}

	draw() {
		const { canvas, model } = this, full = canvas.parentElement.clientWidth, ratio = Math.min(window.devicePixelRatio || 1, 2);
		if (!model || !full) return;
		this.from = model.end() - SPAN_MS;
		if (canvas.width !== Math.round(full * ratio)) canvas.width = Math.round(full * ratio);
		if (canvas.height !== HEIGHT * ratio) canvas.height = HEIGHT * ratio;
		const g = canvas.getContext("2d"), style = getComputedStyle(document.documentElement), colour = (name) => style.getPropertyValue(name).trim();
		g.setTransform(ratio, 0, 0, ratio, 0, 0);
		g.clearRect(0, 0, full, HEIGHT);
		const factor = model.factors(this.filter), bars = model.windows.filter((w) => w.start + w.duration > this.from)
			.map((w) => [this.place(w.start), w.duration / SPAN_MS * full, this.rate(w, factor)]);
		const most = this.most = bars.reduce((a, [, , n]) => Math.max(a, n), 0);
		g.fillStyle = colour("--dim");
		for (const [x, w, n] of bars) if (most) g.fillRect(x, HEIGHT - n / most * (HEIGHT - 14), Math.max(w - 0.5, 0.5), HEIGHT);
		g.font = "11px system-ui, sans-serif";
		g.textBaseline = "top";
		this.unit = most ? rate(most, this.filter.kind) : "";
		g.fillText(this.unit, 4, 1);
		const mark = (range, name) => {
			if (!range) return;
			const x = this.place(range[0]), w = Math.max(this.place(range[1]) - x, 2);
			g.fillStyle = g.strokeStyle = colour(name);
			g.globalAlpha = 0.3;
			g.fillRect(x, 0, w, HEIGHT);
			g.globalAlpha = 1;
			g.strokeRect(x + 0.5, 0.5, Math.max(w - 1, 1), HEIGHT - 1);
		};
		mark(this.drag?.base ? null : this.drag?.range ?? this.range, "--accent");
		mark(this.drag?.base ? this.drag.range : this.base, "--bad");
	}

	down(event) {
		if (event.button || !this.model) return;
		this.canvas.setPointerCapture(event.pointerId);
		const at = this.time(event);
		this.drag = { at, base: event.shiftKey, range: [at, at] };
	}
	move(event) {
		if (!this.drag) return;
		const at = this.time(event);
		this.drag.range = [Math.min(at, this.drag.at), Math.max(at, this.drag.at)];
		this.draw();
	}
	up() {
		const { drag } = this;
		this.drag = null;
		if (!drag) return;
		// A press without a drag removes the range.
		const range = this.place(drag.range[1]) - this.place(drag.range[0]) < 3 ? null : drag.range.map(Math.round);
		if (drag.base) this.options.base(range);
		else this.options.chosen(range);
	}

	keys(event) {
		const step = { ArrowLeft: -5000, ArrowRight: 5000 }[event.key], end = this.model?.end();
		if (event.key === "Escape" && this.range) this.options.chosen(null);
		else if (step && end) {
			const [from, to] = this.range ?? [end - 30000, end], wide = event.shiftKey;
			if (!this.range) this.options.chosen([from, to]);
			else if (wide) this.options.chosen([from, Math.max(Math.min(to + step, end), from + 5000)]);
			else if (from + step >= end - SPAN_MS && to + step <= end) this.options.chosen([from + step, to + step]);
		} else return;
		event.preventDefault();
		event.stopPropagation();
	}
}
