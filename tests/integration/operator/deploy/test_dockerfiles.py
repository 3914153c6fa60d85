# SPDX-License-Identifier: Apache-2.0
"""deploy/*.Dockerfile, checked without Docker: they install exactly the packages that the programs need, copy what the
build reads, and agree with hack/images, which makes the same images without Docker."""

import os
import re
import subprocess

import pytest

from conftest import ROOT

PROGRAMS = {"agent": "KILN_AGENT", "operator": "KILN_OPERATOR"}
# OF_THE_BASE is in Debian's slim image. BESIDES are no libraries that the programs link: the CA certificates for TLS, and
# the plugin that libwebsockets loads by name.
OF_THE_BASE = {"libc6"}
BESIDES = {"ca-certificates", "libwebsockets-evlib-uv"}


def dockerfile(name):
    """The instructions of a Dockerfile, with continued lines joined and without comments."""
    text = (ROOT / f"deploy/{name}.Dockerfile").read_text()
    return re.sub(r"\\\n\s*", "", "".join(line + "\n" for line in text.splitlines() if not line.startswith("#")))


def installed(name):
    """The packages that the last stage of a Dockerfile installs."""
    last = dockerfile(name).split("FROM ")[-1]
    return set(re.search(r"apt-get install -y --no-install-recommends ([^&]*)&&", last).group(1).split())


def binary(name):
    path = os.environ.get(PROGRAMS[name], "")
    if not os.path.exists(path):
        pytest.skip(f"integration/operator/deploy: no {PROGRAMS[name]}")
    return path


def needed(path):
    """The Debian packages of the libraries that the program PATH names itself (DT_NEEDED)."""
    names = re.findall(r"\(NEEDED\).*\[(.*)\]", subprocess.run(["readelf", "-d", path], capture_output=True, text=True,
                                                              check=True).stdout)
    files = dict(re.findall(r"(\S+) => (\S+)", subprocess.run(["ldd", path], capture_output=True, text=True,
                                                              check=True).stdout))
    # dpkg may know a library below /usr/lib or /lib, which are the same directory here: ask for both.
    real = {name: os.path.realpath(files[name]) for name in names}
    found = subprocess.run(["dpkg", "-S", *real.values(), *(f.removeprefix("/usr") for f in real.values())],
                           capture_output=True, text=True, check=False).stdout
    owner = {file.removeprefix("/usr"): package for package, file in re.findall(r"^([^:]+):.* (/\S+)$", found, re.M)}
    return {owner.get(file.removeprefix("/usr"), f"nobody's {file}") for file in real.values()}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_installed_is_what_is_needed(name):
    with open("/etc/os-release", encoding="utf-8") as f:
        release = f.read()
    if "ID=debian" not in release or 'VERSION_ID="12"' not in release:
        pytest.skip("integration/operator/deploy: not Debian 12")
    # Leave out libraries that only a build with sanitizers or another compiler needs.
    ours = {p for p in needed(binary(name)) if not re.match(r"lib(asan|ubsan|tsan|gcc-s1|stdc\+\+)", p)}
    assert installed(name) - BESIDES == ours - OF_THE_BASE


def test_it_has_no_arguments_of_its_own():
    """The images set no CMD, as those of hack/images: a program that is configured by its environment gets no arguments."""
    for name in PROGRAMS:
        assert not re.search(r"^CMD", dockerfile(name), re.M)


def test_the_packages_are_debian_12s():
    wanted = installed("agent") | installed("operator")
    known = subprocess.run(["apt-cache", "show", "--no-all-versions", *wanted], capture_output=True, text=True,
                           check=False)
    if not known.stdout:
        pytest.skip("integration/operator/deploy: apt knows no packages here")
    assert set(re.findall(r"^Package: (\S+)$", known.stdout, re.M)) == wanted, known.stderr


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_is_what_hack_images_makes(name):
    """The Dockerfile and hack/images agree in program, entry point, user and ports."""
    made = re.search(rf"^image kiln-{name}(.*)$", (ROOT / "hack/images").read_text(), re.M).group(1)
    last = dockerfile(name).split("FROM ")[-1]
    assert f'ENTRYPOINT ["/usr/local/bin/kiln-{name}"]' in last
    assert re.findall(r"--user (\S+)", made) == re.findall(r"^USER (\S+)$", last, re.M)
    ports = [p for line in re.findall(r"^EXPOSE (.*)$", last, re.M) for p in line.split()]
    assert set(re.findall(r"--port (\d+)", made)) <= set(ports)
    assert f"COPY --from=build /kiln-{name} /usr/local/bin/kiln-{name}" in last


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_it_runs_and_copies_is_in_the_tree(name):
    first = dockerfile(name).split("FROM ")[1]
    for source in re.findall(r"^COPY (?!--)(\S+) ", first, re.M):
        assert (ROOT / source).exists(), source
    assert os.access(ROOT / "hack/lib/install.sh", os.X_OK) and "hack/lib/install.sh build" in first
    # The script runs before the whole tree is copied, so it may read only hack/lib.
    script = re.sub(r"^\s*#.*$", "", (ROOT / "hack/lib/install.sh").read_text(), flags=re.M)
    assert not re.search(r"hack/(?!lib/)", script)
    assert f"--target kiln-{name}" in first and f"build/release/bin/kiln-{name}" in first
    # The build context leaves out .git, which no step needs, and this machine's build/.
    ignored = (ROOT / f"deploy/{name}.Dockerfile.dockerignore").read_text().split("\n")
    assert {"/build", "/.git"} <= set(ignored)
    assert all(text.startswith("debian:12-slim") for text in dockerfile(name).split("FROM ")[1:])
