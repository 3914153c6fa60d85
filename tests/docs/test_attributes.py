# SPDX-License-Identifier: Apache-2.0
"""docs/attributes.md has every attribute that the operator and the agent attach."""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_every_key_is_told():
    text = (ROOT / "docs/attributes.md").read_text(encoding="utf-8")
    keys = set()
    for source in ("operator/cache/identity.c", "agent/window/resource.c"):
        code = (ROOT / source).read_text(encoding="utf-8")
        keys |= set(re.findall(r'"((?:k8s|container|service)\.[a-z0-9_.]+[a-z0-9_])"', code))
    assert len(keys) > 30
    # The table lists the owners' uid attributes as "and `.uid` of each": an owner's `.name` stands for its `.uid` too.
    told = lambda key: f"`{key}`" in text or (key.endswith(".uid") and f"`{key[:-4]}.name`" in text)  # noqa: E731
    assert not {key for key in keys if not told(key)}
