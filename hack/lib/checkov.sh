#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# checkov, which looks through manifests and Dockerfiles for what is unsafe: from PyPI, outside of the tree.
#
#   hack/lib/checkov.sh      installs it when it is missing, then prints its path
set -euo pipefail

version=3.3.30
cache=${XDG_CACHE_HOME:-$HOME/.cache}/kiln
real=$cache/checkov-$version

mkdir -p "$cache"
exec 9>"$cache/checkov.lock"
flock 9
if [ ! -e "$real/complete" ]; then
	rm -rf "$real"
	python3 -m venv "$real" >&2
	"$real/bin/python" -m pip install --quiet --disable-pip-version-check "checkov==$version" >&2
	touch "$real/complete"
fi
echo "$real/bin/checkov"
