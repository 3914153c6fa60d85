# SPDX-License-Identifier: Apache-2.0
"""hack/site builds the site, every link in the site has a target, and a dead link in a document is an error."""
import html.parser
import os
import pathlib
import shutil
import subprocess
import sys
import urllib.parse

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def make(target, root=ROOT):
    return subprocess.run([sys.executable, root / "hack/site.d/site.py", target], capture_output=True, text=True, check=False)


class Page(html.parser.HTMLParser):
    """The ids and the link targets of an HTML page. Fails on unbalanced tags, duplicate ids and scripts."""

    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.open = set(), [], []
        self.feed(path.read_text(encoding="utf-8"))
        self.close()
        assert self.open == [], path

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        assert "script" != tag and not any(name.startswith("on") for name in found)
        if "id" in found:
            assert found["id"] not in self.ids, found
            self.ids.add(found["id"])
        self.links += [found[name] for name in ("href", "src") if name in found]
        if tag not in ("meta", "link", "img", "br", "hr"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    target = tmp_path_factory.mktemp("site")
    done = make(target)
    assert done.returncode == 0, done.stderr
    return target


def test_every_link_leads_somewhere(site):
    pages = {path: Page(path) for path in site.rglob("*.html") if "files" not in path.parts}
    assert len(pages) > 30
    n = 0
    for path, page in pages.items():
        for link in page.links:
            if urllib.parse.urlsplit(link).scheme:
                assert link.startswith(("https://", "http://localhost:")), (path, link)
                continue
            to, _, fragment = link.partition("#")
            there = pathlib.Path(os.path.normpath(path.parent / to)) if to else path
            assert there.is_file() and site in there.parents, (path, link)
            assert not fragment or fragment in pages[there].ids, (path, link)
            n += 1
    assert n > 1000


def test_every_page_is_in_every_menu(site):
    pages = {path for path in site.rglob("*.html") if "files" not in path.parts}
    for path in pages:
        linked = {pathlib.Path(os.path.normpath(path.parent / link.partition("#")[0])) for link in Page(path).links}
        assert pages <= linked | {path}, path


@pytest.fixture
def tree(tmp_path):
    """A copy of every file that the site is built from."""
    for name in ("docs", "hack/site.d"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for name in ("README.md", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.mark.parametrize("text, said", [
    ("[a](docs/nowhere.md)", "docs/nowhere.md: there is no such file"),
    ("[a](docs/crds.md#no-such-heading)", "docs/crds.md has no such heading"),
    ("[a](../outside.md)", "there is no such file"),
])
def test_a_dead_link_is_an_error(tree, text, said):
    (tree / "README.md").write_text(f"# Kiln\n\n{text}\n")
    done = make(tree / "site", tree)
    assert done.returncode == 1 and said in done.stderr, done.stderr


def test_a_document_that_no_menu_has_is_an_error(tree):
    (tree / "docs/new.md").write_text("# New\n")
    done = make(tree / "site", tree)
    assert done.returncode == 1 and "docs/new.md" in done.stderr
