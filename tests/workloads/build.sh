#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds every workload into OUT. A part whose compiler is missing is left out and named in OUT/missing;
# the tests of that part are then reported as skipped. usage: build.sh OUT
set -euo pipefail
src=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
: > "$out/missing"
CC=${WL_CC:-gcc} CXX=${WL_CXX:-g++}
# No frame pointers; no tail call, folding or cloning may remove a frame of a chain.
flags=(-O2 -g0 -fomit-frame-pointer -fno-optimize-sibling-calls -fno-stack-protector -D_GNU_SOURCE
	-Wall -Wextra -Wno-unused-function "-I$src")

missing() { echo "$1 $2" >> "$out/missing"; echo "workloads: no $2: $1 left out" >&2; }
cc() { # NAME SOURCE FLAGS...
	local name=$1 source=$2
	shift 2
	"$CC" "${flags[@]}" "$@" "$src/$source" -o "$out/wl-$name" ${libs:-}
}

cc qsort qsort.c
cc qsort-nopie qsort.c -no-pie -fno-pie
cc qsort-static qsort.c -static
cc qsort-static-pie qsort.c -static-pie -fPIE
cc qsort-debugframe qsort.c -g -fno-asynchronous-unwind-tables -fno-unwind-tables
cc qsort-protected qsort.c -fcf-protection=full -fstack-protector-strong -D_FORTIFY_SOURCE=2 -Wl,-z,relro,-z,now
# A program with other function names and another layout, which a test renames over a running qsort.
cc qsort-impostor qsort.c -Dspin=impostor_spin -Drec=impostor_rec -Dcmp=impostor_cmp -O1

# qsort without symbols; with symbols in .debug/ by debug link; with symbols in .gnu_debugdata.
cp "$out/wl-qsort" "$out/wl-qsort-stripped" && strip --strip-all "$out/wl-qsort-stripped"
mkdir -p "$out/.debug"
cc qsort-debuglink qsort.c -g -Wl,--build-id=none
objcopy --only-keep-debug "$out/wl-qsort-debuglink" "$out/.debug/wl-qsort-debuglink.debug"
strip --strip-all "$out/wl-qsort-debuglink"
(cd "$out/.debug" && objcopy --add-gnu-debuglink=wl-qsort-debuglink.debug "$out/wl-qsort-debuglink")
cc qsort-minidebug qsort.c
objcopy --only-keep-debug "$out/wl-qsort-minidebug" "$out/minidebug.full"
nm --format=posix --defined-only "$out/minidebug.full" | awk '$2 ~ /^[Tt]$/ {print $1}' > "$out/minidebug.names"
objcopy -S --remove-section .comment --keep-symbols="$out/minidebug.names" "$out/minidebug.full" "$out/minidebug"
xz -f "$out/minidebug"
strip --strip-all "$out/wl-qsort-minidebug"
objcopy --add-section .gnu_debugdata="$out/minidebug.xz" "$out/wl-qsort-minidebug"
rm -f "$out/minidebug.full" "$out/minidebug.names" "$out/minidebug.xz"

cc nest nest.c
cc nest-static nest.c -static
cc signal signal.c
cc signal-static signal.c -static
cc kernel kernel.c
cc mmaps mmaps.c
cc crowd crowd.c
cc forks forks.c
libs=-pthread cc threads threads.c
libs=-pthread cc waits waits.c
libs=-pthread cc sleepers sleepers.c
libs=-pthread cc threads-static threads.c -static
cc plugin-red.so plugin.c -shared -fPIC -fvisibility=hidden -DNAME=red
cc plugin-blue.so plugin.c -shared -fPIC -fvisibility=hidden -DNAME=blue -DPADDED
libs=-ldl cc dlopen dlopen.c
cc frames frames.c
cc frames-avx frames.c -mavx2 -mstackrealign
cc tiny.so tiny.c -shared -fPIC
for v in lazy:-Wl,-z,lazy,-fcf-protection=none lazy-cet:-Wl,-z,lazy,-fcf-protection=full now:-Wl,-z,now,-fcf-protection=none; do
	name=plt-${v%%:*} opt=${v#*:}
	libs="$out/wl-tiny.so -Wl,-rpath,\$ORIGIN" cc "$name" plt.c "${opt%,-fcf*}" "-fcf${opt##*,-fcf}"
done
cc fork fork.c
cc exec-left exec.c -no-pie -fno-pie -DNAME=left '-DOTHER="right"'
cc exec-right exec.c -no-pie -fno-pie -DNAME=right '-DOTHER="left"' -DPADDED
cc storm storm.c
pad=0
for name in ash birch cedar dill; do
	cc short-$name short.c -no-pie -fno-pie -DNAME=$name -DPADDING=$pad "-DPADDING_TEXT=\"$((pad + 1))\""
	pad=$((pad + 48))
done
cc rhythm rhythm.c
cc tick tick.c
cc tick-static tick.c -static
cc jit jit.c
# Programs with frame pointers instead of unwind information, and with more code than the agent reads as a whole.
bare=(-fno-asynchronous-unwind-tables -fno-unwind-tables -fno-omit-frame-pointer -momit-leaf-frame-pointer)
cc bare bare.c "${bare[@]}" -fno-toplevel-reorder
cc bare-cet bare.c "${bare[@]}" -fno-toplevel-reorder -fcf-protection=full -Os
cp "$out/wl-bare" "$out/wl-bare-stripped" && strip --strip-all "$out/wl-bare-stripped"
if command -v clang > /dev/null; then
	clang "${flags[@]}" "${bare[@]}" -Wno-unknown-attributes -Wno-ignored-attributes "$src/bare.c" -o "$out/wl-bare-clang"
else
	missing bare-clang clang
fi
cc many many.c
mkdir -p "$out/right" "$out/wrong"
for v in right wrong; do
	level=()
	[ "$v" != wrong ] || level=(-O0)
	"$CC" "${flags[@]}" -shared -fPIC -fvisibility=hidden -DNAME="$v" "${level[@]}" \
		"$src/trap.c" -Wl,-soname,libtrap.so -o "$out/$v/libtrap.so"
done
"$CC" "${flags[@]}" "$src/trapped.c" -o "$out/wl-chroot" "$out/right/libtrap.so" -Wl,-rpath,/kiln-trap

if command -v "$CXX" > /dev/null; then
	"$CXX" "${flags[@]}" -std=c++17 "$src/cxx.cpp" -o "$out/wl-cxx"
else
	missing cxx "$CXX"
fi

if command -v musl-gcc > /dev/null; then
	musl-gcc "${flags[@]}" -DWL_MUSL -static "$src/nest.c" -o "$out/wl-nest-musl"
	musl-gcc "${flags[@]}" -DWL_MUSL "$src/nest.c" -o "$out/wl-nest-musl-dynamic"
else
	missing nest-musl musl-gcc
	missing nest-musl-dynamic musl-gcc
fi
rustc=$(command -v rustc || echo "$HOME/.cargo/bin/rustc")
if [ -x "$rustc" ]; then
	for m in legacy v0; do
		sed "s/NAME::/wl_rust_$m::/g" "$src/rust.rs" > "$out/rust_$m.rs"
		RUSTC_BOOTSTRAP=1 "$rustc" -Zunstable-options -C symbol-mangling-version=$m -C opt-level=2 \
			-C force-frame-pointers=no --edition 2021 --crate-name wl_rust_$m "$out/rust_$m.rs" -o "$out/wl-rust-$m"
	done
else
	missing rust-legacy rustc
	missing rust-v0 rustc
fi
go=$(command -v go || echo /usr/local/go/bin/go)
if [ -x "$go" ]; then
	export GOFLAGS=-mod=mod GOTOOLCHAIN=local GOPROXY=off
	(cd "$src/go" && CGO_ENABLED=0 "$go" build -o "$out/wl-go" .)
	(cd "$src/go" && CGO_ENABLED=0 "$go" build -buildmode=pie -ldflags='-s -w' -o "$out/wl-go-stripped" .)
	(cd "$src/cgo" && CGO_ENABLED=1 CC=$CC "$go" build -o "$out/wl-cgo" .)
else
	missing go go
	missing go-stripped go
	missing cgo go
fi
