# SPDX-License-Identifier: Apache-2.0
# frozen_string_literal: true

# A web server that renders a template for each request, and the client that keeps it busy, in a process of its own. For
# test_real_programs.py.
require "erb"
require "net/http"
require "webrick"

# The pages.
class Table < WEBrick::HTTPServlet::AbstractServlet
  PAGE = ERB.new(<<~TEXT)
    <table><% rows.each do |row| %><tr><% row.each do |cell| %><td><%= ERB::Util.html_escape(cell) %></td><% end %></tr>
    <% end %></table>
  TEXT

  def do_GET(request, response)
    n = Integer(request.query.fetch("n", "400"))
    rows = (1..n).map { |i| ["<#{i}>", i * i, i.to_s(2)] }
    response.body = PAGE.result(binding)
    response["Content-Type"] = "text/html"
  end
end

server = WEBrick::HTTPServer.new(Port: 0, BindAddress: "127.0.0.1", AccessLog: [], Logger: WEBrick::Log.new(File::NULL))
server.mount "/table", Table
port = server.listeners.first.addr[1]
# A connection waits for an acknowledgement now and then: many of them keep the server busy.
client = fork do
  16.times.map do
    Thread.new do
      loop { Net::HTTP.start("127.0.0.1", port) { |http| 50.times { |i| http.get("/table?n=#{400 + i}") } } }
    end
  end.each(&:join)
end
trap("TERM") do
  Process.kill("KILL", client)
  exit!
end
server.start
