#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The LuaJIT versions that Debian's releases have, for the tests, as hack/lib/debian.sh unpacks them.
#
#   hack/lib/luajit.sh bookworm|trixie|forky   makes it when it is missing, then prints its path: chroot ROOT /usr/bin/luajit
#
# About 40 MB each, at most four minutes. Exit status 77, with the reason: cannot be had here.
set -eu
case ${1-} in
bookworm | trixie | forky) exec "$(dirname "$0")/debian.sh" luajit "$1" luajit ;;
*) sed -n '3,/^[^#]/{s/^# \{0,1\}//p}' "$0" >&2; exit 2 ;;
esac
