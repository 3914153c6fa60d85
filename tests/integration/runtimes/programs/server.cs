// SPDX-License-Identifier: Apache-2.0
// A web server of asynchronous methods on sockets, and the clients that keep it busy. For test_real_programs.py.
using System;
using System.Collections.Concurrent;
using System.Collections.Generic;
using System.Linq;
using System.Net;
using System.Net.Sockets;
using System.Text;
using System.Threading.Tasks;

namespace Shop {
class Item {
	public int Number;
	public string Name;
	public decimal Price;
}

class Cart {
	readonly List<Item> items = new List<Item>();

	public IEnumerable<Item> Sorted() {
		lock (items)
			return items.OrderBy(i => i.Price).ThenBy(i => i.Name).ToList();
	}

	public void Add(Item item) {
		lock (items) {
			items.Add(item);
			if (items.Count > 50)
				items.RemoveAt(0);
		}
	}
}

class Store {
	readonly Dictionary<int, Item> items = Enumerable.Range(0, 500).ToDictionary(
		n => n, n => new Item { Number = n, Name = "<item-" + n + ">", Price = n * n % 97 / 3m });
	readonly ConcurrentDictionary<int, Cart> carts = new ConcurrentDictionary<int, Cart>();
	int next;

	public async Task<string> Page(int who) {
		var cart = carts.GetOrAdd(who, _ => new Cart());
		cart.Add(items[System.Threading.Interlocked.Increment(ref next) % items.Count]);
		await Task.Yield();
		var page = new StringBuilder("<ul>");
		foreach (var item in cart.Sorted())
			page.AppendFormat("<li id={0}>{1}: {2:F2}</li>", item.Number, Escaped(item.Name), item.Price);
		return page.Append("</ul>").Append(Total(cart)).ToString();
	}

	static string Escaped(string text) {
		return text.Replace("&", "&amp;").Replace("<", "&lt;").Replace(">", "&gt;");
	}

	static string Total(Cart cart) {
		try {
			decimal sum = cart.Sorted().Sum(i => i.Price);
			if (cart.Sorted().Count() % 16 == 0)
				throw new InvalidOperationException("the sum is not to be had");
			return sum.ToString("F2");
		} catch (InvalidOperationException e) {
			return e.Message;
		}
	}
}

static class Server {
	static readonly Store store = new Store();

	static async Task<int> ReadLines(NetworkStream stream, byte[] buffer) {
		int n = 0;
		for (;;) {
			int got = await stream.ReadAsync(buffer, n, buffer.Length - n);
			if (got == 0)
				return 0;
			n += got;
			if (n >= 4 && buffer[n - 1] == '\n' && buffer[n - 2] == '\r' && buffer[n - 3] == '\n')
				return n;
		}
	}

	static async Task Serve(TcpClient connection) {
		using (connection) {
			connection.NoDelay = true;
			var stream = connection.GetStream();
			var buffer = new byte[8192];
			int n;
			while ((n = await ReadLines(stream, buffer)) > 0) {
				string[] lines = Encoding.ASCII.GetString(buffer, 0, n).Split(new[] { "\r\n" }, StringSplitOptions.None);
				byte[] body = Encoding.UTF8.GetBytes(await store.Page(int.Parse(lines[0].Split(' ')[1].TrimStart('/'))));
				byte[] head = Encoding.ASCII.GetBytes("HTTP/1.1 200 OK\r\nContent-Length: " + body.Length + "\r\n\r\n");
				await stream.WriteAsync(head, 0, head.Length);
				await stream.WriteAsync(body, 0, body.Length);
			}
		}
	}

	static async Task Ask(int port, int who) {
		using (var client = new TcpClient()) {
			client.NoDelay = true;
			await client.ConnectAsync(IPAddress.Loopback, port);
			var stream = client.GetStream();
			byte[] request = Encoding.ASCII.GetBytes("GET /" + who + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
			var buffer = new byte[65536];
			for (;;) {
				await stream.WriteAsync(request, 0, request.Length);
				int want = -1;
				for (int n = 0; want < 0 || n < want;) {
					n += await stream.ReadAsync(buffer, n, buffer.Length - n);
					string text = Encoding.ASCII.GetString(buffer, 0, n);
					int end = text.IndexOf("\r\n\r\n");
					if (want < 0 && end > 0)
						want = end + 4 + int.Parse(text.Substring(0, end).Split(':').Last());
				}
			}
		}
	}

	static async Task Accept(TcpListener listener) {
		for (;;) {
			_ = Serve(await listener.AcceptTcpClientAsync());
		}
	}

	static void Main() {
		var listener = new TcpListener(IPAddress.Loopback, 0);
		listener.Start();
		int port = ((IPEndPoint)listener.LocalEndpoint).Port;
		var all = new List<Task> { Accept(listener) };
		for (int who = 0; who < 8; who++)
			all.Add(Ask(port, who));
		Task.WaitAny(all.ToArray());
	}
}
}
