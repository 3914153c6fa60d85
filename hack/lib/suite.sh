# SPDX-License-Identifier: Apache-2.0
# Packages of another release of Debian, without touching the machine's apt. Sourced.
#
#   suite_open SUITES WORK    sets up a separate apt in the empty directory WORK, configured by WORK/apt.conf, and fetches
#                             the lists of SUITES (separated by commas). It has sources, lists and a state of its own, and
#                             the machine's settings and mirror; downloads are checked against Debian's archive keyring.
#   suite_apt SECONDS ARG...  runs apt-get ARG... there for SECONDS at most; its output goes to WORK/log
#
# Packages are of the architecture KILN_DEBIAN_ARCH (arm64), or of the machine's.
#
# Both return 77, with the reason on standard error, when the suite cannot be had here.
suite_keyring=/usr/share/keyrings/debian-archive-keyring.gpg

suite_not_here()
{
	echo "packages of Debian $suite_name cannot be had: $*" >&2
	return 77
}

suite_apt()
{
	timeout "$1" apt-get -c "$suite_work/apt.conf" -q "${@:2}" < /dev/null > "$suite_work/log" 2>&1 ||
		suite_not_here "apt-get $2: $(grep -m 1 '^E: ' "$suite_work/log" || echo "no answer within $1 s")"
}

suite_open()
{
	local mirror suite
	suite_name=$1 suite_work=$2
	command -v apt-get > /dev/null || { suite_not_here "apt-get is not installed"; return; }
	[ -r "$suite_keyring" ] || { suite_not_here "$suite_keyring is not installed"; return; }
	# The mirror that the machine uses.
	# shellcheck disable=SC2016
	mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Label: Debian' 'Identifier: Packages' \
		2> /dev/null | sed -n 1p) || true
	[ -n "$mirror" ] || { suite_not_here "apt knows no mirror of Debian"; return; }
	chmod 755 "$suite_work" # apt fetches as a user of its own
	mkdir -p "$suite_work"/{lists,cache/archives}/partial
	touch "$suite_work/status"
	for suite in ${suite_name//,/ }; do
		echo "deb [signed-by=$suite_keyring] $mirror $suite main"
	done > "$suite_work/sources.list"
	cat > "$suite_work/apt.conf" <<- END
		Dir::Etc::sourcelist "$suite_work/sources.list";
		Dir::Etc::sourceparts "/dev/null";
		Dir::Etc::preferences "/dev/null";
		Dir::Etc::preferencesparts "/dev/null";
		Dir::State "$suite_work";
		Dir::State::status "$suite_work/status";
		Dir::State::lists "$suite_work/lists";
		Dir::Cache "$suite_work/cache";
		Acquire::Languages "none";
		Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
		Acquire::http::Timeout "20";
		Acquire::https::Timeout "20";
		Acquire::Retries "1";
		#clear APT::Update::Post-Invoke;
		#clear APT::Update::Post-Invoke-Success;
		#clear APT::Update::Pre-Invoke;
		#clear DPkg::Post-Invoke;
	END
	if [ -n "${KILN_DEBIAN_ARCH-}" ]; then
		printf 'APT::Architecture "%s";\nAPT::Architectures { "%s"; };\n' "$KILN_DEBIAN_ARCH" "$KILN_DEBIAN_ARCH" \
			>> "$suite_work/apt.conf"
	fi
	# Without --error-on=any apt would only warn of lists that it cannot fetch.
	suite_apt 120 update --error-on=any
}
