# SPDX-License-Identifier: Apache-2.0
"""Makes the site of hack/site: a page for each document, with the same links. site.py DIRECTORY

Markdown is CommonMark with tables, ids of headings are GitHub's, so that a document that is right here is right on
GitHub. A file of the tree that a document links to is copied as text."""
import html
import os
import pathlib
import re
import shutil
import sys
import urllib.parse

from markdown_it import MarkdownIt

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
# Every document, in the order of the menu.
MENU = {
    "Kiln": ["README.md", "docs/from-other-profilers.md", "docs/configuration.md", "docs/live.md", "docs/overhead.md",
             "docs/budget.md", "docs/attributes.md", "docs/off-cpu.md", "docs/labels.md", "docs/probes.md"],
    "In a cluster": ["docs/operator.md", "docs/crds.md", "docs/policy.md", "docs/deploy.md", "docs/helm.md", "docs/clickhouse.md",
                     "docs/monitoring.md"],
    "How it works": ["docs/architecture.md", "docs/containers.md", "docs/symbols.md", "docs/node-stream.md",
                     "docs/node-stream-agent.md", "docs/kubernetes-wire.md"],
    "Stacks": ["docs/unwinding/README.md", "docs/unwinding/native.md", "docs/unwinding/code-frames.md",
               "docs/unwinding/arm64.md", "docs/unwinding/hotspot.md", "docs/unwinding/v8.md", "docs/unwinding/python.md",
               "docs/unwinding/ruby.md", "docs/unwinding/php.md", "docs/unwinding/perl.md", "docs/unwinding/dotnet.md",
               "docs/unwinding/beam.md", "docs/unwinding/luajit.md"],
    "Working on Kiln": ["CONTRIBUTING.md", "docs/adding-a-runtime.md", "docs/testing-kubernetes.md"],
}
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="stylesheet" href="{up}site.css">
</head>
<body>
<nav aria-label="Documents">{menu}</nav>
<main>
{body}</main>
</body>
</html>
"""


class Fault(Exception):
    pass


def page_of(document):
    """Path in the site of the page of DOCUMENT."""
    path = pathlib.PurePosixPath(document).with_suffix(".html")
    return str(path.with_name("index.html") if path.name == "README.html" else path)


def slug(text, taken):
    """The id that GitHub gives to the heading TEXT. TAKEN: ids of the headings before; the second of equal ones ends in -1."""
    base = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
    name, n = base, 0
    while name in taken:
        n += 1
        name = f"{base}-{n}"
    taken.add(name)
    return name


class Document:
    """A parsed document; its headings have their ids."""

    def __init__(self, name):
        self.name = name
        self.tokens = MarkdownIt("commonmark").enable("table").parse((ROOT / name).read_text(encoding="utf-8"))
        self.title, self.ids = None, set()
        for token, inline in zip(self.tokens, self.tokens[1:]):
            if token.type == "heading_open":
                text = "".join(part.content for part in inline.children if part.type in ("text", "code_inline"))
                token.attrSet("id", slug(text, self.ids))
                self.title = self.title or text
        if not self.title:
            raise Fault(f"{name}: has no heading")


class Site:
    def __init__(self, target):
        self.target = pathlib.Path(target)
        self.documents = {name: Document(name) for names in MENU.values() for name in names}
        self.copied = set()

    def copy(self, path):
        """Copies a file of the tree so that a browser shows it; for a folder, its files and a list of them. Returns the path
        in the site."""
        here = ROOT / path
        if here.suffix in (".png", ".svg"):
            to = path
        else:
            to = f"files/{path}" + ("/index.html" if here.is_dir() else ".txt")
        if to not in self.copied:
            self.copied.add(to)
            out = self.target / to
            out.parent.mkdir(parents=True, exist_ok=True)
            if here.is_dir():
                files = sorted(p.name for p in here.iterdir() if p.is_file())
                for name in files:
                    self.copy(f"{path}/{name}")
                items = "".join(f'<li><a href="../{html.escape(os.path.basename(path))}/{name}.txt">{name}</a></li>'
                                for name in files)
                out.write_text(f"<!DOCTYPE html><title>{html.escape(path)}</title><ul>{items}</ul>", encoding="utf-8")
            else:
                shutil.copyfile(here, out)
        return to

    def link(self, document, address):
        """The address in the site for ADDRESS, a link in DOCUMENT. Fault when the link leads nowhere."""
        if urllib.parse.urlsplit(address).scheme:
            return address
        path, _, fragment = address.partition("#")
        name = os.path.normpath(os.path.join(os.path.dirname(document.name), path)) if path else document.name
        if name.startswith("..") or not (ROOT / name).exists():
            raise Fault(f"{document.name}: {address}: there is no such file")
        if name in self.documents:
            if fragment and fragment not in self.documents[name].ids:
                raise Fault(f"{document.name}: {address}: {name} has no such heading")
            to = page_of(name)
        elif name.endswith(".md"):
            raise Fault(f"{document.name}: {address}: {name} is not in the menu")
        else:
            to = self.copy(name)
        return os.path.relpath(to, os.path.dirname(page_of(document.name))) + (f"#{fragment}" if fragment else "")

    def menu(self, document):
        out = ""
        for group, names in MENU.items():
            out += f"<h2>{html.escape(group)}</h2><ul>"
            for name in names:
                current = ' aria-current="page"' if name == document.name else ""
                title = html.escape(self.documents[name].title)
                out += f'<li><a href="{self.link(document, self.relative(document, name))}"{current}>{title}</a></li>'
            out += "</ul>"
        return out

    @staticmethod
    def relative(document, name):
        return os.path.relpath(name, os.path.dirname(document.name) or ".")

    def write(self, document):
        for token in document.tokens:
            for part in token.children or ():
                for attribute in ("href", "src"):
                    if part.attrGet(attribute):
                        part.attrSet(attribute, self.link(document, part.attrGet(attribute)))
        body = MarkdownIt("commonmark").enable("table").renderer.render(document.tokens, MarkdownIt("commonmark").options, {})
        # Wide tables and code scroll in a box of their own, which the keyboard reaches too (tabindex).
        body = body.replace("<table>", '<div class="wide" tabindex="0"><table>').replace("</table>", "</table></div>")
        body = body.replace("<pre>", '<pre tabindex="0">')
        out = self.target / page_of(document.name)
        out.parent.mkdir(parents=True, exist_ok=True)
        title = document.title if document.title == "Kiln" else f"{document.title} - Kiln"
        out.write_text(PAGE.format(title=html.escape(title), up="../" * page_of(document.name).count("/"),
                                   menu=self.menu(document), body=body), encoding="utf-8")


def main(target):
    there = {str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md")} | {"README.md", "CONTRIBUTING.md"}
    listed = [name for names in MENU.values() for name in names]
    try:
        if sorted(listed) != sorted(there):
            raise Fault(f"hack/site.d/site.py: MENU lists other documents than there are: {sorted(set(listed) ^ there)}")
        site = Site(target)
        for document in site.documents.values():
            site.write(document)
    except Fault as fault:
        sys.exit(f"hack/site: {fault}")
    shutil.copyfile(HERE / "site.css", site.target / "site.css")
    print(f"{site.target}/index.html: {len(site.documents)} pages")


main(sys.argv[1])
