// Downloads. The SVG of the graph is made here; the other formats come from the agent or from keep.js.

import { ROW, colourOf, diffColour, inkOn, GROUP_COLOUR } from "./flame.js";
import { byName } from "./tree.js";

const escapes = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
function escape(text) {
	// Control characters are not allowed in XML at all.
	return text.replace(/[&<>"]/g, (c) => escapes[c]).replace(/[\u0000-\u001f\ufffe\uffff]/g, " ");
}

/**
 * A flame graph as a standalone SVG document. LINE: the frames from the root to the zoomed one; DIFF: colours show the
 * change since the base.
 */
export function toSvg(line, types, title, { icicle, diff }) {
	const full = 1200, root = line[0], top = line[line.length - 1], rects = line.slice(0, -1).map((node, d) => ({ node, d, x: 0, w: full }));
	let depth = line.length - 1;
	const fill = (node) => {
		if (node.small) return GROUP_COLOUR;
		if (diff) return diffColour((node.total - node.base) / root.total);
		return node.type < 0 ? GROUP_COLOUR : colourOf(types[node.type]);
	};
	const place = (node, d, x, scale) => {
		rects.push({ node, d, x, w: node.total * scale });
		depth = Math.max(depth, d);
		const wide = node.wide(0.3 / scale).map(([, c]) => c).sort(byName), rest = wide.reduce((left, c) => left - c.total, node.total - node.self);
		for (const c of wide) { place(c, d + 1, x, scale); x += c.total * scale; }
		if (rest * scale >= 0.3) {
			rects.push({ node: { name: "small frames", total: rest, small: true }, d: d + 1, x, w: rest * scale });
			depth = Math.max(depth, d + 1);
		}
	};
	if (top.total > 0) place(top, line.length - 1, 0, full / top.total);
	const height = (depth + 1) * ROW + 40, out = [];
	out.push(`<svg xmlns="http://www.w3.org/2000/svg" width="${full}" height="${height}" viewBox="0 0 ${full} ${height}" font-family="sans-serif" font-size="11">`,
		`<rect width="100%" height="100%" fill="#ffffff"/><text x="4" y="20" font-size="14">${escape(title + (top === root ? "" : ` · zoomed to ${top.name}`) + (diff ? " · blue: less than before, orange: more" : ""))}</text>`);
	for (const r of rects) {
		const y = icicle ? 32 + r.d * ROW : height - 4 - (r.d + 1) * ROW;
		const share = (100 * r.node.total / root.total).toFixed(2), name = escape(r.node.name);
		const colour = fill(r.node);
		const room = Math.floor((r.w - 6) / 6.2);
		const cut = r.node.name.length > room ? r.node.name.slice(0, Math.max(room - 1, 0)) + "…" : r.node.name;
		const text = room >= 3 ? `<text x="${(r.x + 3).toFixed(1)}" y="${y + 12}" fill="${inkOn(colour)}">${escape(cut)}</text>` : "";
		out.push(`<g><title>${name} ${share}%</title><rect x="${r.x.toFixed(1)}" y="${y}" width="${Math.max(r.w - 0.5, 0.3).toFixed(1)}" height="${ROW - 1}" fill="${colour}"/>${text}</g>`);
	}
	out.push("</svg>");
	return out.join("\n");
}

export function save(blob, name) {
	const link = document.createElement("a");
	link.href = URL.createObjectURL(blob);
	link.download = name;
	document.body.append(link);
	link.click();
	link.remove();
	setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** The query of /api/profile for FILTER and the last SECONDS; 0: since the start. */
export function profileQuery(format, seconds, filter) {
	const q = new URLSearchParams({ format, window: String(seconds) });
	for (const key of ["thread", "namespace", "pod", "container", "label", "trace"]) if (filter[key]) q.set(key, filter[key]);
	if (filter.process?.startsWith("pid:")) q.set("pid", filter.process.slice(4));
	else if (filter.process) q.set("process", filter.process.slice(5));
	if (filter.kind !== "0") q.set("kind", filter.kind === "1" ? "off-cpu" : filter.kind);
	if (filter.probe) q.set("probe", filter.probe);
	return q.toString();
}
