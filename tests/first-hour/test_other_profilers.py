# SPDX-License-Identifier: Apache-2.0
"""docs/from-other-profilers.md has a row for each code block of the documents of other profilers, and each row states
what the agent really answers. KILN_WRITE=1 writes the page anew. The documents are not part of the tree (KILN_SEEDS,
../shared/seeds); without them only the files, flags and links that the page names are checked."""
import difflib
import functools
import os
import re
import shlex
import subprocess
import sys
import textwrap

import pytest
import yaml

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "integration", "agent"))
import parts  # noqa: E402
from other_profilers import DOCUMENTS, Otherwise, Receives, Row, Runs, Untouched  # noqa: E402

SEEDS = os.environ.get("KILN_SEEDS", str(parts.ROOT.parent / "shared" / "seeds"))
PAGE = parts.ROOT / "docs" / "from-other-profilers.md"
HEAD = """# From another profiler

What a configuration, a command or a manifest for another profiler becomes with Kiln, block by block of five public
documents. `tests/first-hour/test_other_profilers.py` makes this page from what the agent answers: "as written" is what
`kiln-agent --check` starts with exit code 0, with the block's own flags, environment, mounts and capabilities. That their
samples arrive is what `tests/integration/agent/test_seeds.py` looks at.
"""


# ---- the documents ---------------------------------------------------------------------------------


def documents():
    """The texts of the documents in order; empty when they are not there."""
    names = sorted(n for n in (os.listdir(SEEDS) if os.path.isdir(SEEDS) else []) if re.match(r"\d{3}_.*\.txt$", n))
    return [open(os.path.join(SEEDS, n), encoding="utf-8").read() for n in names]


def blocks(text):
    """(line, text) of each fenced block, dedented. A document without fences has one block: its configuration."""
    out = [(text.count("\n", 0, m.start()) + 1, textwrap.dedent(m.group(2)))
           for m in re.finditer(r"^([ \t]*)``` ?\w* ?\n(.*?)^\1```", text, re.M | re.S)]
    if not out:
        m = re.search(r"^receivers:\n(?:.*\n)*?[ \t]+exporters: \[.*\]$", text, re.M)
        out = [(text.count("\n", 0, m.start()) + 1, m.group(0) + "\n")]
    return out


def sections(text):
    """{top-level key: its lines}"""
    found = (re.match(r"([A-Za-z_]+):", part) and part for part in re.split(r"^(?=[A-Za-z_]+:)", text, flags=re.M))
    return {part.split(":", 1)[0]: part for part in found if part}


# ---- what the agent says ---------------------------------------------------------------------------


def agent(directory, arguments, config=None, env=None, prefix=()):
    """Runs the agent with --check: (exit code, its warnings and errors, without time and position)."""
    if config is not None:
        path = directory / "config.yaml"
        path.write_text(config, encoding="utf-8")
        arguments = [*(a for a in arguments if not a.startswith("--config")), "--config", str(path)]
    clean = {k: v for k, v in os.environ.items() if not k.startswith("OTEL_")}
    done = subprocess.run([*prefix, parts.agent.binary(), *arguments, "--check"], capture_output=True, text=True,
                          timeout=parts.WAIT, check=False, env={**clean, **(env or {})})
    said = []
    for line in done.stderr.splitlines():
        line = re.sub(r"^\S+Z (warn|error) (config: )?|^kiln-agent: ", "", line)
        said.append(re.sub(r"^\S*config\.yaml:\d+: ", "", line))
    return done.returncode, said


def mounts(pairs):
    """A command prefix: binds host folders to the block's mount points, read-only, in a mount namespace of its own."""
    script = "".join(f"mount --rbind {shlex.quote(a)} {shlex.quote(b)} && mount -o remount,bind,ro {shlex.quote(b)} && "
                     for a, b in pairs)
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script + 'exec "$@"', "sh"]


def of_the_host(pairs):
    """The mounts of /proc, /sys and /lib whose mount point exists here. Others are files whose text the agent is given."""
    return [(a, b) for a, b in pairs if a.startswith(("/proc", "/sys", "/lib")) and os.path.isdir(b)]


def is_profiler(image):
    return "ebpf-profiler" in image


def containers(text):
    """(arguments, environment, mounts) of each container of a profiler in a manifest or a compose file."""
    document = yaml.safe_load(text)
    if "services" in document:
        for service in document["services"].values():
            if is_profiler(service["image"]):
                assert service["privileged"] and service["pid"] == "host"
                yield service["command"], {}, [v.split(":")[:2] for v in service["volumes"]]
        return
    spec = document["spec"]["template"]["spec"]
    paths = {v["name"]: v["hostPath"]["path"] for v in spec["volumes"]}
    for c in spec["containers"]:
        assert is_profiler(c["image"]) and spec["hostPID"] and c["securityContext"] == {"privileged": True}
        env = {e["name"]: e.get("value", "meadow") for e in c.get("env", [])}
        env = {k: re.sub(r"\$\((\w+)\)", lambda m: env[m.group(1)], v) for k, v in env.items()}
        yield c.get("args", []), env, [(paths[m["name"]], m["mountPath"]) for m in c["volumeMounts"]]


def runs(directory, text, whole):
    """Runs agent() for each start that the block TEXT describes. WHOLE: the document's complete configuration, if any."""
    if re.search(r"^(receivers|processors):", text, re.M):
        part = sections(text)
        config = text if "receivers" in part else "".join({**sections(whole), **part}.values())
        return [agent(directory, ["--feature-gates=service.profilesSupport"], config)]
    if "ExecStart=" in text:
        line = re.search(r"^ExecStart=((?:.*\\\n)*.*)$", text, re.M).group(1)
        caps = re.search(r"^CapabilityBoundingSet=(.*)$", text, re.M).group(1).lower().replace("cap_", "+").split()
        return [agent(directory, shlex.split(line.replace("\\\n", " "))[1:], prefix=["setpriv", "--bounding-set=-all," + ",".join(caps)])]
    if "apiVersion" in text or "services" in sections(text):
        found = list(containers(text))
    else:
        found = [(*flags(words), []) for words in commands(text)]
        found = [(a, {}, of_the_host(v)) for a, v, _ in found]
    assert found, text
    return [agent(directory, a, whole if any("--config" in word for word in a) else None, env,
                  mounts(of_the_host(pairs))) for a, env, pairs in found]


def commands(text):
    """The lines of a shell block, as words, that start a profiler or consist of a profiler's flags."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[:2] == ["docker", "run"] or any(w.startswith("-") for w in words):
            yield words


def flags(words):
    """(arguments, mounts) of a command line, given as words."""
    if words[:2] == ["docker", "run"]:
        image = next(i for i, w in enumerate(words) if is_profiler(w) and "/" in w)
        return words[image + 1:], [words[i + 1].split(":")[:2] for i in range(image) if words[i] == "-v"]
    return words[next(i for i, w in enumerate(words) if w.startswith("-")):], []


# ---- the page --------------------------------------------------------------------------------------


def outcome(row, directory, text, whole):
    """The text of the row's "outcome" column, from the agent's answer."""
    if isinstance(row, Untouched):
        return "stays as it is"
    if isinstance(row, Otherwise):
        return "another way"
    if isinstance(row, Receives):
        code, said = agent(directory, [], text)
        assert code == 2, said
        # The last line is the error; it tells what to do instead.
        assert re.search(r"; run an OpenTelemetry Collector for that$", said[-1]), said
        return f"for a Collector; the agent says `{said[-1]}`"
    assert isinstance(row, Runs)
    told = []
    for code, said in runs(directory, text, whole):
        assert code == 0, (row, said)
        told += [line for line in said if line not in told]
    return "as written" + ("; it says " + ", ".join(f"`{line}`" for line in told) if told else "")


@pytest.fixture(scope="module")
def texts():
    found = documents()
    if not found:
        pytest.skip(f"no documents at {SEEDS}")
    return found


def table(directory, title, rows, text):
    found = blocks(text)
    assert len(found) == len(rows), f"{title}: {len(found)} blocks, {len(rows)} rows"
    out = [f"\n## {title}\n\n| line | | outcome | with Kiln |\n|---|---|---|---|\n"]
    whole = None
    for (line, block), row in zip(found, rows, strict=True):
        assert row.has in block, f"{title}, line {line}: not what the row is about: {row.has}"
        came = outcome(row, directory, block, whole)
        if re.search(r"^receivers:", block, re.M):
            whole = block
        out.append(f"| {line} | {row.what} | {came} | {row.here} |\n")
    return "".join(out)


def test_each_block_has_its_row_and_the_page_has_what_the_agent_says(texts, tmp_path):
    assert len(texts) == len(DOCUMENTS)
    page = HEAD + "".join(table(tmp_path, title, rows, text)
                          for (title, rows), text in zip(DOCUMENTS, texts, strict=True))
    if os.environ.get("KILN_WRITE") == "1":
        PAGE.write_text(page, encoding="utf-8")
    old = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    assert old == page, "stale, KILN_WRITE=1 makes it anew:\n" + "".join(
        difflib.unified_diff(old.splitlines(True), page.splitlines(True), "the page", "the agent", n=0))


def test_flags_of_the_documents_are_flags_of_the_agent(texts):
    """Every flag that the documents mention, in running text too, is one of the agent's."""
    known = help_text()
    asked = {w for text in texts for w in re.findall(r"`(-{1,2}[a-z][a-z-]+)(?:=[^`]*)?`", text)}
    assert "-collection-agent" in asked
    missing = [w for w in sorted(asked) if not re.search(rf"--?{re.escape(w.lstrip('-'))}\b", known)]
    assert missing == []


@functools.cache
def help_text():
    return subprocess.run([parts.agent.binary(), "--help"], capture_output=True, text=True, check=True).stdout


def test_a_port_without_tls_is_told_with_the_flag(tmp_path):
    """--check names the flag --disable-tls when the receiver speaks plain text, as the documents' receiver does."""
    collector = parts.Collector(tmp_path, parts.components.collector()).start()
    try:
        asked = subprocess.run([parts.agent.binary(), "-collection-agent", f"localhost:{collector.grpc}", "--check"],
                               capture_output=True, text=True, timeout=parts.WAIT, check=False)
    finally:
        collector.kill()
    assert re.search(r"exporter .* the port speaks plain text, not TLS \(.*--disable-tls", asked.stdout), asked.stdout


# ---- without the documents -------------------------------------------------------------------------


def test_every_row_of_the_page_is_one_of_the_test():
    page = PAGE.read_text(encoding="utf-8")
    rows: list[Row] = [row for _, rows in DOCUMENTS for row in rows]
    assert len(re.findall(r"^\| \d+ \| ", page, re.M)) == len(rows) > 40
    for row in rows:
        assert f" | {row.what} | " in page and row.here in page, row


def test_what_the_page_names_is_there():
    page = PAGE.read_text(encoding="utf-8")
    code = re.findall(r"`([^`]+)`", page)
    paths = {word for c in code for word in re.findall(r"(?<![\w./])(?:\./)?((?:hack|deploy|kustomize|docs|tests)/[\w./-]+)", c)}
    assert len(paths) > 10
    assert [p for p in sorted(paths) if not (parts.ROOT / p).exists()] == []
    # Flags that follow the program's name.
    flags_named = {w for c in code if c.startswith("kiln-agent -") for w in c.split() if w.startswith("--")}
    assert flags_named and [w for w in flags_named if w not in help_text()] == []
    for target in re.findall(r"\]\(([^)]+)\)", page):
        name, _, anchor = target.partition("#")
        text = (PAGE.parent / name).read_text(encoding="utf-8")
        anchors = {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^#+ (.*)$", text, re.M)}
        assert not anchor or anchor in anchors, target
    service = (parts.ROOT / "kustomize/components/pyroscope/pyroscope.yaml").read_text(encoding="utf-8")
    found = [d for d in yaml.safe_load_all(service) if d["kind"] == "Service" and d["metadata"]["name"] == "pyroscope"]
    assert [(d["metadata"]["namespace"], d["spec"]["ports"][0]["port"]) for d in found] == [("pyroscope", 4040)]
