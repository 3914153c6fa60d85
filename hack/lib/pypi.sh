#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A program of PyPI that only tests use, in an environment of its own outside of the tree.
#
#   hack/lib/pypi.sh NAME      installs it when it is missing, then prints the path of what to run
#     checkov       looks for unsafe settings in manifests and Dockerfiles
#     clickhouse    ClickHouse's engine as a library of Python (chdb), without a server: prints a python that has it
set -euo pipefail

case ${1:-} in
checkov) version=3.3.30 packages=("checkov==$version") run=bin/checkov ;;
clickhouse) version=26.9.0 packages=(--no-deps "chdb-core==$version") run=bin/python ;;
*)
	sed -n '4,7s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
cache=${XDG_CACHE_HOME:-$HOME/.cache}/kiln
real=$cache/$1-$version

mkdir -p "$cache"
exec 9>"$cache/$1.lock"
flock 9
if [ ! -e "$real/complete" ]; then
	rm -rf "$real"
	python3 -m venv "$real" >&2
	"$real/bin/python" -m pip install --quiet --disable-pip-version-check "${packages[@]}" >&2
	touch "$real/complete"
fi
echo "$real/$run"
