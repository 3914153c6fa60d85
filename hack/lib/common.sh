# SPDX-License-Identifier: Apache-2.0
# Functions that the scripts in hack/ share. Sourced after "set -euo pipefail"; sets ROOT and goes there.
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$ROOT" || exit

# Go and Rust from outside the distribution are found where their installers put them.
for dir in /usr/local/go/bin "$HOME/go/bin" "$HOME/.cargo/bin" /usr/sbin; do
	case ":$PATH:" in
	*":$dir:"*) ;;
	*) [ ! -d "$dir" ] || PATH=$PATH:$dir ;;
	esac
done
export PATH

script=$(basename "$0")
started=$SECONDS

# One line for each step, with the time since the start, so that a long one can be told from a hung one.
step()
{
	printf '== %s: %s (%d s)\n' "$script" "$*" "$((SECONDS - started))" >&2
}

die()
{
	printf '%s: %s\n' "$script" "$*" >&2
	exit 1
}

# The comment at the top of a script, without its first two lines, is its --help.
usage()
{
	sed -n '3,/^[^#]/{s/^# \{0,1\}//p}' "$0"
}

# Every file of the tree that git knows or would add, one a line. Without git: all outside build/.
tree_files()
{
	if git rev-parse --is-inside-work-tree > /dev/null 2>&1; then
		# git's index still lists files that are deleted in the work tree.
		git ls-files --cached --others --exclude-standard "$@" | while IFS= read -r file; do
			[ ! -f "$file" ] || printf '%s\n' "$file"
		done
	else
		find . -path ./build -prune -o -type f -print | sed 's|^\./||'
	fi
}

# build PRESET [TARGET...]: configures when needed, builds.
build()
{
	local preset=$1
	shift
	step "configure $preset"
	cmake --preset "$preset" > "build-$preset.log" 2>&1 || {
		cat "build-$preset.log" >&2
		rm -f "build-$preset.log"
		die "cmake --preset $preset failed"
	}
	rm -f "build-$preset.log"
	step "build $preset"
	cmake --build "build/$preset" -- "$@" >&2 || die "building $preset failed"
}
