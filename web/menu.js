// The menu of a frame, opened by the right mouse button or by m on the frame with the keyboard focus.

/** Shows ITEMS, [[label, action], ...], at X, Y of the window. An item, Escape and Tab give the focus back to FROM. */
export function openMenu(menu, items, x, y, from) {
	const close = (back) => { menu.hidden = true; menu.onkeydown = null; if (back) from.focus(); };
	menu.replaceChildren(...items.map(([label, action]) => {
		const button = document.createElement("button");
		button.type = "button";
		button.setAttribute("role", "menuitem");
		button.textContent = label;
		button.addEventListener("click", () => { close(true); action(); });
		return button;
	}));
	menu.hidden = false;
	menu.style.left = Math.max(4, Math.min(x, innerWidth - menu.offsetWidth - 4)) + "px";
	menu.style.top = Math.max(4, Math.min(y, innerHeight - menu.offsetHeight - 4)) + "px";
	const buttons = [...menu.children];
	buttons[0].focus();
	menu.onkeydown = (e) => {
		const at = buttons.indexOf(document.activeElement), step = { ArrowDown: 1, ArrowUp: -1 }[e.key];
		if (e.key === "Escape" || e.key === "Tab") close(true);
		else if (step) buttons[(at + step + buttons.length) % buttons.length].focus();
		else if (e.key !== "Enter" && e.key !== " ") return;
		if (e.key !== "Enter" && e.key !== " ") e.preventDefault();
		e.stopPropagation();
	};
	menu.onfocusout = (e) => { if (!menu.contains(e.relatedTarget)) close(false); };
}

/** Copies TEXT; without access to the clipboard (plain HTTP that is not local), by way of a temporary text field. */
export async function copy(text) {
	try { await navigator.clipboard.writeText(text); return; } catch { /* below */ }
	const field = document.createElement("textarea");
	field.value = text;
	document.body.append(field);
	field.select();
	document.execCommand("copy");
	field.remove();
}
