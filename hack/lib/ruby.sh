#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Ruby versions that Debian's releases have, for the tests, as hack/lib/debian.sh unpacks them.
#
#   hack/lib/ruby.sh 2.7|3.1|3.3|3.4      makes it when it is missing, then prints its path: chroot ROOT /usr/bin/ruby2.7
#
# About 40 MB each, at most four minutes. Exit status 77, with the reason: cannot be had here (what experimental has may
# be gone).
set -eu
case ${1-} in
2.7) set -- bullseye ruby2.7 ;;
3.1) set -- bookworm ruby3.1 ruby-webrick ;;
3.3) set -- trixie ruby3.3 ruby-webrick ;;
3.4) set -- sid,experimental ruby3.4 ruby-webrick ;;
*) sed -n '3,/^[^#]/{s/^# \{0,1\}//p}' "$0" >&2; exit 2 ;;
esac
exec "$(dirname "$0")/debian.sh" ruby "$@"
