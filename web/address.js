// What is shown, as the address says it after '#': a link shows the same, and the back button goes back.

/** Each with its default. */
export const DEFAULTS = {
	view: "flame", window: "60", range: "", base: "", baseRange: "", kind: "0", group: "name", search: "", regex: "", chosen: "",
	process: "", thread: "", namespace: "", pod: "", container: "", label: "", trace: "", hidden: "", focus: "", drop: "", recursion: "", sort: "self",
	paused: "", zoom: "",
};
/** What may stand there; other keys take any text. */
const CHOICES = {
	view: /^(flame|icicle|sandwich|table)$/, window: /^(10|60|300|0)$/, base: /^(10|60|0)?$/, kind: /^([01]|wall|probe:.+)$/s,
	group: /^(name|process|thread|container|label:.+)?$/s, trace: /^[0-9a-f]{0,32}$/, sort: /^-?(name|self|total|change)$/, range: /^(\d+-\d+)?$/, baseRange: /^(\d+-\d+)?$/,
	regex: /^1?$/, recursion: /^1?$/, paused: /^1?$/, process: /^((pid|name):.*)?$/s,
};
const ZOOM_MAX = 4000; // characters; a longer path is not worth an address

/** The state that HASH describes; what makes no sense is as if it were not there. */
export function parse(hash) {
	const q = new URLSearchParams(hash.replace(/^#/, "")), state = { ...DEFAULTS };
	for (const key of Object.keys(state)) {
		const value = q.get(key);
		if (value !== null && (!CHOICES[key] || CHOICES[key].test(value))) state[key] = value;
	}
	return { state, token: q.get("token") ?? "" };
}

/** Puts STATE into the address; PUSH: as a step that the back button takes back. */
export function write(state, push) {
	const q = new URLSearchParams();
	for (const [key, value] of Object.entries(state)) if (value !== DEFAULTS[key]) q.set(key, value);
	const address = q.toString() ? "#" + q : location.pathname;
	if (address === (location.hash || location.pathname)) return;
	if (push) history.pushState(null, "", address);
	else history.replaceState(null, "", address);
}

/** Names in one text, and back. */
export function join(names) {
	const text = names.map((name) => name.replaceAll("%", "%25").replaceAll(";", "%3B")).join(";");
	return text.length > ZOOM_MAX ? "" : text;
}
export function split(text) { return text ? text.split(";").map((name) => name.replaceAll("%3B", ";").replaceAll("%25", "%")) : []; }
/** [from, to] in ms of "from-to", or null. */
export function times(range) { return range ? range.split("-").map(Number) : null; }
