#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The releases of Erlang/OTP that Debian has, for the tests, as hack/lib/debian.sh unpacks them. 23 has no
# JIT; 25 comes with Elixir.
#
#   hack/lib/erlang.sh 23|25|27|29      makes it when it is missing, then prints its path: chroot ROOT
#                                       /usr/lib/erlang/erts-*/bin/erlexec
#
# About 100 MB each, at most four minutes. Exit status 77, with the reason: cannot be had here.
set -eu
case ${1-} in
23) set -- bullseye erlang-base ;;
25) set -- bookworm erlang-base elixir ;;
27) set -- trixie erlang-base ;;
29) set -- sid erlang-base ;;
*) sed -n '3,/^[^#]/{s/^# \{0,1\}//p}' "$0" >&2; exit 2 ;;
esac
exec "$(dirname "$0")/debian.sh" erlang "$@"
