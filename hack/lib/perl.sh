#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Perl versions that Debian's releases have, for the tests, as hack/lib/debian.sh unpacks them.
#
#   hack/lib/perl.sh 5.32|5.36|5.40|5.42|5.44      makes it when it is missing, then prints its path: chroot ROOT /usr/bin/perl
#
# About 80 MB each, at most four minutes. Exit status 77, with the reason: cannot be had here (what experimental has may
# be gone).
set -eu
case ${1-} in
5.32) set -- bullseye perl ;;
5.36) set -- bookworm perl ;;
5.40) set -- trixie perl ;;
5.42) set -- forky perl ;;
5.44) set -- sid,experimental perl/experimental libc-gconv-modules-extra/experimental ;;
*) sed -n '3,/^[^#]/{s/^# \{0,1\}//p}' "$0" >&2; exit 2 ;;
esac
exec "$(dirname "$0")/debian.sh" perl "$@"
