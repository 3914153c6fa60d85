#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ClickHouse as a library of Python (chdb, from PyPI): the engine of a server, without the server.
#
#   hack/lib/clickhouse.sh      installs it when it is missing, then prints the path of its python
set -euo pipefail

version=26.9.0
cache=${XDG_CACHE_HOME:-$HOME/.cache}/kiln
real=$cache/clickhouse-$version

mkdir -p "$cache"
exec 9>"$cache/clickhouse.lock"
flock 9
if [ ! -e "$real/complete" ]; then
	rm -rf "$real"
	python3 -m venv "$real" >&2
	"$real/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps "chdb-core==$version" >&2
	touch "$real/complete"
fi
echo "$real/bin/python"
