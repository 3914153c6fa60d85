#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The newest kernel of a release of Debian, for hack/vm: its package, unpacked outside of the tree. Nothing is
# installed.
#
#   hack/lib/kernel.sh SUITE     makes it when it is missing, then prints its folder: DIR/boot/vmlinuz-RELEASE
#
# Exit status 77, with the reason: cannot be had here.
set -euo pipefail
. "$(dirname "$0")/suite.sh"

suite=${1:?SUITE}
cache=${KILN_CACHE:-$HOME/.cache/kiln}/vm
real=$cache/$suite
mkdir -p "$cache"
exec 9> "$cache/$suite.lock"
suite_name=$suite
flock -w 240 9 || suite_not_here "another fetch does not end"
if [ ! -e "$real/complete" ]; then
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	suite_open "$suite" "$work"
	# The package of this name is empty and depends on the newest one.
	package=$(apt-cache -c "$work/apt.conf" depends linux-image-cloud-amd64 |
		sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p')
	# From Debian 14 on the image is in a package that this one depends on in turn.
	binary=$(apt-cache -c "$work/apt.conf" depends "${package:-none}" | sed -n 's/.*Depends: \(linux-binary-.*\)/\1/p')
	package=${binary:-$package}
	[ -n "$package" ] || suite_not_here "linux-image-cloud-amd64 depends on no kernel"
	mkdir "$work/deb"
	chmod 777 "$work/deb" # apt fetches as a user of its own
	(cd "$work/deb" && suite_apt 300 download "$package")
	dpkg-deb --extract "$work"/deb/*.deb "$work/x"
	rm -rf "$real"
	mkdir -p "$real"
	image=$(find "$work/x" -type f -name 'vmlinuz*')
	[ -f "$image" ] || suite_not_here "$package has no kernel image"
	release=${package#linux-*-}
	mkdir -p "$real/boot"
	mv "$image" "$real/boot/vmlinuz-$release"
	touch "$real/complete"
fi
echo "$real"
