// SPDX-License-Identifier: Apache-2.0
// As web.py: a web server and its client in one process. usage: node web.js SECONDS
"use strict";
const http = require("http");

const items = Array.from({ length: 60 }, (_, i) => ({ name: "item " + i, price: (i * 37) % 101 }));

class Shop {
	cheapest(below) {
		return items.filter((i) => i.price < below).sort((a, b) => a.price - b.price || a.name.localeCompare(b.name));
	}
	page(query) {
		return this.cheapest(query.below).map((i) => `<tr><td>${i.name}</td><td>${i.price}</td></tr>`).join("");
	}
}

const shop = new Shop();
const server = http.createServer(async (request, response) => {
	const parts = [];
	for await (const part of request) parts.push(part);
	response.end(shop.page(JSON.parse(Buffer.concat(parts).toString())));
});

const agent = new http.Agent({ keepAlive: true });
const until = Date.now() + 1000 * Number(process.argv[2]);

function ask(n) {
	if (Date.now() > until) process.exit(0);
	const request = http.request({ port: server.address().port, host: "127.0.0.1", method: "POST", agent }, (response) => {
		response.resume();
		response.on("end", () => ask(n + 1));
	});
	request.end(JSON.stringify({ below: n % 100 }));
}
server.listen(0, "127.0.0.1", () => ask(0));
