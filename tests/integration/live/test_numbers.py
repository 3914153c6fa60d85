# SPDX-License-Identifier: Apache-2.0
"""The page's trees, which are built lazily from flat arrays, and its sums, which are updated by window, are correct."""
import os

from stream import Feed


def test_trees_table_and_sums_are_as_counted_by_hand(browser):
    with open(os.path.join(os.path.dirname(__file__), "numbers.js"), encoding="utf-8") as f:
        by_hand = f.read()
    with Feed(100, 0, 120) as feed:
        browser.page(feed.url + "/")
        browser.wait("window.kiln?.shown?.total > 0")
        assert browser.js(f"({by_hand})()") == []
        assert browser.complaints() == []
