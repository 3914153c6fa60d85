#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The CPython versions that Debian's next release has, for the tests, as hack/lib/debian.sh unpacks them.
#
#   hack/lib/python.sh      makes it when it is missing, then prints its path: chroot ROOT /usr/bin/python3.14
#
# About 35 MB, at most four minutes. Exit status 77, with the reason: cannot be had here.
exec "$(dirname "$0")/debian.sh" python forky \
	python3.14-minimal libpython3.14-stdlib python3.15-minimal libpython3.15-stdlib
