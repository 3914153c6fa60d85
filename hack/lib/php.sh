#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A version of PHP with php-fpm and opcache, of the release of Debian that has it, for the tests, as hack/lib/debian.sh
# unpacks it.
#
#   hack/lib/php.sh 7.4|8.2|8.4|8.5|8.6   makes it when it is missing, then prints its path: chroot ROOT /usr/bin/php8.2
#
# About 60 MB of packages each, at most four minutes. Exit status 77, with the reason: cannot be had here.
set -euo pipefail

packages=("php${1-}-cli" "php${1-}-fpm")
case ${1-} in
7.4) suites=bullseye ;;
8.2) suites=bookworm ;;
8.4) suites=trixie ;;
8.5 | 8.6) suites=sid,experimental ;;
*) sed -n '3,/^[^#]/{s/^# \{0,1\}//p}' "$0" >&2; exit 2 ;;
esac
# From 8.5 on opcache is a part of the programs.
case $1 in 8.[56]) ;; *) packages+=("php$1-opcache") ;; esac
exec "$(dirname "$0")/debian.sh" "php$1" "$suites" "${packages[@]}"
