#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Python that the tests use: one virtual environment outside of the tree, pinned.
#
#   hack/lib/venv.sh      makes it when it is missing, then prints the path of its python
#
# The directory's name holds a hash of the pins, so another set of pins is another environment. Several
# callers at once wait for the first.
set -euo pipefail

pins='grpcio==1.76.0
markdown-it-py==4.0.0
mdurl==0.1.2
opentelemetry-proto==1.45.0
protobuf==7.36.2
pytest==9.0.3
PyYAML==6.0.3'

cache=${XDG_CACHE_HOME:-$HOME/.cache}/kiln
hash=$(printf '%s\n' "$pins" | sha256sum | cut -c1-12)
real=$cache/venv-$hash

mkdir -p "$cache"
exec 9>"$cache/venv.lock"
flock 9
if [ ! -e "$real/complete" ]; then
	rm -rf "$real"
	python3 -m venv "$real" >&2
	printf '%s\n' "$pins" > "$real/pins.txt"
	"$real/bin/python" -m pip install --quiet --disable-pip-version-check -r "$real/pins.txt" >&2
	touch "$real/complete"
fi
ln -sfn "venv-$hash" "$cache/venv"
echo "$real/bin/python"
