#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The CPython versions that Debian's next release has, for the tests: their packages, with all that these
# depend on, unpacked into a root directory of their own outside of the tree. Nothing is installed.
#
#   hack/lib/python.sh      makes it when it is missing, then prints its path: chroot ROOT /usr/bin/python3.14
#
# apt gets sources, lists and a state of its own, and the machine's settings; what it fetches is checked against
# Debian's archive keyring. About 35 MB, at most four minutes. Exit status 77, with the reason: cannot be had here.
set -euo pipefail

suite=forky
packages=(python3.14-minimal libpython3.14-stdlib python3.15-minimal libpython3.15-stdlib)
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

not_here()
{
	echo "CPython of Debian $suite cannot be had: $*" >&2
	exit 77
}

fetch()
{
	timeout "$1" apt-get -c "$work/apt.conf" -q "${@:2}" < /dev/null > "$work/log" 2>&1 ||
		not_here "apt-get $2: $(grep -m 1 '^E: ' "$work/log" || echo "no answer within $1 s")"
}

cache=${KILN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kiln}
hash=$(printf '%s\n' "$suite" "${packages[@]}" | sha256sum | cut -c1-12)
real=$cache/python-$suite-$hash

mkdir -p "$cache"
exec 9> "$cache/python.lock"
flock -w 240 9 || not_here "another fetch does not end"
if [ ! -e "$real/complete" ]; then
	command -v apt-get > /dev/null || not_here "apt-get is not installed"
	[ -r "$keyring" ] || not_here "$keyring is not installed"
	# The mirror that the machine uses.
	# shellcheck disable=SC2016
	mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Label: Debian' 'Identifier: Packages' \
		2> /dev/null | sed -n 1p) || true
	[ -n "$mirror" ] || not_here "apt knows no mirror of Debian"
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	chmod 755 "$work" # apt fetches as a user of its own
	mkdir -p "$work"/{lists,cache/archives}/partial
	touch "$work/status"
	echo "deb [signed-by=$keyring] $mirror $suite main" > "$work/sources.list"
	cat > "$work/apt.conf" <<- END
		Dir::Etc::sourcelist "$work/sources.list";
		Dir::Etc::sourceparts "/dev/null";
		Dir::Etc::preferences "/dev/null";
		Dir::Etc::preferencesparts "/dev/null";
		Dir::State "$work";
		Dir::State::status "$work/status";
		Dir::State::lists "$work/lists";
		Dir::Cache "$work/cache";
		Acquire::Languages "none";
		Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
		Acquire::http::Timeout "20";
		Acquire::https::Timeout "20";
		Acquire::Retries "1";
		#clear APT::Update::Post-Invoke;
		#clear APT::Update::Post-Invoke-Success;
		#clear APT::Update::Pre-Invoke;
		#clear DPkg::Post-Invoke;
	END
	# Without its lists apt would only warn.
	fetch 120 update --error-on=any
	fetch 120 install --yes --no-install-recommends --download-only "${packages[@]}"
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
