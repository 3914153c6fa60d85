#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Starts an MCP server, and asks it for its list of tools until it ends: ten requests at a time, and the next ten when all are
# answered. For test_real_programs.py.
# usage: ask_mcp.sh COMMAND...   (in a directory where it can make the pipe for the answers)
rm -f answers
mkfifo answers

ask()
{
	echo '{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2024-11-05",' \
		'"capabilities": {}, "clientInfo": {"name": "shop", "version": "1"}}}'
	head -n 1 > answer
	echo '{"jsonrpc": "2.0", "method": "notifications/initialized"}'
	id=1
	while [ -s answer ]; do
		last=$((id + 10))
		while [ $id -lt $last ]; do
			id=$((id + 1))
			echo "{\"jsonrpc\": \"2.0\", \"id\": $id, \"method\": \"tools/list\"}"
		done
		head -n 10 > answer
	done
}

# shellcheck disable=SC2094 # it is a pipe
ask < answers | "$@" > answers
