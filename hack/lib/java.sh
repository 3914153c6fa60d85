#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Java virtual machines that Debian's development release has, for the tests, as hack/lib/debian.sh unpacks them.
#
#   hack/lib/java.sh 8|11|17|21|25|26|27|28   makes it when it is missing, then prints its path:
#                                             chroot ROOT /usr/lib/jvm/java-8-openjdk-amd64/bin/java
#
# 8 comes with its compiler, whose classes all versions run; from 11 on the runtimes have theirs inside. About 55 MB
# each, at most four minutes. Exit status 77, with the reason: cannot be had here.
set -eu
case ${1-} in
8) set -- openjdk-8-jdk-headless ;;
11 | 17 | 21 | 25 | 26 | 27 | 28) set -- "openjdk-$1-jre-headless" ;;
*) sed -n '3,/^[^#]/{s/^# \{0,1\}//p}' "$0" >&2; exit 2 ;;
esac
root=$("$(dirname "$0")/debian.sh" java sid "$@")
# Some need it.
mkdir -p "$root/sys"
echo "$root"
