// The state of the view, kept in the address after '#': a link shows the same view, and the back button goes back.

/** The keys of the state, with their defaults. */
export const DEFAULTS = {
	view: "flame", window: "60", range: "", base: "", baseRange: "", kind: "0", group: "name", search: "", regex: "", chosen: "",
	process: "", thread: "", namespace: "", pod: "", container: "", label: "", trace: "", hidden: "", focus: "", drop: "", recursion: "", sort: "self",
	paused: "", zoom: "",
};
/** The values that a key may have; keys that are not listed take any text. */
const CHOICES = {
	view: /^(flame|icicle|sandwich|table)$/, window: /^(10|60|300|0)$/, base: /^(10|60|0)?$/, kind: /^([01]|wall|probe:.+)$/s,
	group: /^(name|process|thread|container|label:.+)?$/s, trace: /^[0-9a-f]{0,32}$/, sort: /^-?(name|self|total|change)$/, range: /^(\d+-\d+)?$/, baseRange: /^(\d+-\d+)?$/,
	regex: /^1?$/, recursion: /^1?$/, paused: /^1?$/, process: /^((pid|name):.*)?$/s,
};
const ZOOM_MAX = 4000; // characters; a longer list of names is left out of the address

/** The state that HASH describes; invalid values are ignored. */
export function parse(hash) {
	const q = new URLSearchParams(hash.replace(/^#/, "")), state = { ...DEFAULTS };
	for (const key of Object.keys(state)) {
		const value = q.get(key);
		if (value !== null && (!CHOICES[key] || CHOICES[key].test(value))) state[key] = value;
	}
	return { state, token: q.get("token") ?? "" };
}

/** Writes STATE into the address. PUSH: as a new entry of the history, which the back button undoes. */
export function write(state, push) {
	const q = new URLSearchParams();
	for (const [key, value] of Object.entries(state)) if (value !== DEFAULTS[key]) q.set(key, value);
	const address = q.toString() ? "#" + q : location.pathname;
	if (address === (location.hash || location.pathname)) return;
	if (push) history.pushState(null, "", address);
	else history.replaceState(null, "", address);
}

/** join() makes one text of names, split() the names of such a text. */
export function join(names) {
	const text = names.map((name) => name.replaceAll("%", "%25").replaceAll(";", "%3B")).join(";");
	return text.length > ZOOM_MAX ? "" : text;
}
export function split(text) { return text ? text.split(";").map((name) => name.replaceAll("%3B", ";").replaceAll("%25", "%")) : []; }
/** [from, to] in ms of "from-to", or null. */
export function times(range) { return range ? range.split("-").map(Number) : null; }
