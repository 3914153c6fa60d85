#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The CPython versions that Debian's next release has, for the tests: their packages, with all that these
# depend on, unpacked into a root directory of their own outside of the tree. Nothing is installed.
#
#   hack/lib/python.sh      makes it when it is missing, then prints its path: chroot ROOT /usr/bin/python3.14
#
# About 35 MB, at most four minutes. Exit status 77, with the reason: cannot be had here.
set -euo pipefail

suite=forky
packages=(python3.14-minimal libpython3.14-stdlib python3.15-minimal libpython3.15-stdlib)
. "$(dirname "$0")/suite.sh"

cache=${KILN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kiln}
hash=$(printf '%s\n' "$suite" "${packages[@]}" | sha256sum | cut -c1-12)
real=$cache/python-$suite-$hash

mkdir -p "$cache"
exec 9> "$cache/python.lock"
suite_name=$suite
flock -w 240 9 || suite_not_here "another fetch does not end"
if [ ! -e "$real/complete" ]; then
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	suite_open "$suite" "$work"
	suite_apt 120 install --yes --no-install-recommends --download-only "${packages[@]}"
	rm -rf "$real"
	mkdir -p "$real"/usr/{bin,lib,lib64} "$real"/{tmp,dev,proc}
	ln -s usr/bin usr/lib usr/lib64 "$real"
	for deb in "$work"/cache/archives/*.deb; do
		dpkg-deb --extract "$deb" "$real"
	done
	basename -a "$work"/cache/archives/*.deb > "$real/packages.txt"
	touch "$real/complete"
fi
echo "$real"
