#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fetches axe-core, the accessibility rules by which the live page is checked, from npm: pinned by its hash, kept outside
# of the tree. Prints the path of the script. Without npm, or without a registry that has it, it says so and fails.
set -euo pipefail

version=4.10.3
sha256=880970c081707360e64f34cea25ff91892f5bc95675b0776925b9709dd8a68bb

cache=${XDG_CACHE_HOME:-$HOME/.cache}/kiln
real=$cache/axe-core-$version.min.js

mkdir -p "$cache"
exec 9> "$cache/axe.lock"
flock 9
if [ ! -e "$real" ]; then
	command -v npm > /dev/null || { echo "npm is not installed" >&2; exit 1; }
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	(cd "$work" && timeout 120 npm pack --silent "axe-core@$version" > /dev/null) ||
		{ echo "npm has no axe-core@$version" >&2; exit 1; }
	tar -xzf "$work/axe-core-$version.tgz" -C "$work" package/axe.min.js
	echo "$sha256  $work/package/axe.min.js" | sha256sum --check --quiet
	mv "$work/package/axe.min.js" "$real"
fi
echo "$real"
