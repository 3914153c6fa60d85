#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Packages of any release of Debian, with all that they depend on, unpacked into a root directory of their own outside
# of the tree. Nothing is installed.
#
#   hack/lib/debian.sh NAME SUITES PACKAGE...   makes it when it is missing, then prints its path: chroot ROOT PROGRAM
#
# NAME: for people, in the path. SUITES: one, or several with commas between (sid,experimental). A package may
# carry its suite: php8.5-cli/experimental. At most four minutes. KILN_DEBIAN_ARCH=arm64: packages of that
# architecture, to compile and link against. Exit status 77, with the reason: cannot be had here.
set -euo pipefail

[ $# -ge 3 ] || { sed -n '3,/^[^#]/{s/^# \{0,1\}//p}' "$0" >&2; exit 2; }
name=$1 suites=$2
shift 2
. "$(dirname "$0")/suite.sh"

cache=${KILN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kiln}
hash=$(printf '%s\n' "$suites" "$@" ${KILN_DEBIAN_ARCH:+"$KILN_DEBIAN_ARCH"} | sha256sum | cut -c1-12)
real=$cache/$name-${suites//,/-}-$hash

mkdir -p "$cache"
exec 9> "$cache/$name-${suites//,/-}.lock"
suite_name=$suites
flock -w 240 9 || suite_not_here "another fetch does not end"
if [ ! -e "$real/complete" ]; then
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	suite_open "$suites" "$work"
	suite_apt 120 install --yes --no-install-recommends --download-only "$@"
	rm -rf "$real"
	mkdir -p "$real"/usr/{bin,lib,lib64} "$real"/{tmp,dev,proc}
	ln -s usr/bin usr/lib usr/lib64 "$real"
	for deb in "$work"/cache/archives/*.deb; do
		dpkg-deb --extract "$deb" "$real"
	done
	if [ -n "${KILN_DEBIAN_ARCH-}" ]; then # linkers would look for absolute links outside of the root
		find "$real" -type l -lname '/*' -print0 | while IFS= read -r -d '' link; do
			ln -sfnr "$real$(readlink "$link")" "$link"
		done
	fi
	basename -a "$work"/cache/archives/*.deb > "$real/packages.txt"
	touch "$real/complete"
fi
echo "$real"
