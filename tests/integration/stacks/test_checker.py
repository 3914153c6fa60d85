#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the parser and the checker of stacks (lib/kiln): what they must accept and reject."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from kiln import chains, elfsym, textdump  # noqa: E402

DUMP = """\
agent: something logged
--------------- New Resource Profile --------------
  host.name: box (Str)
  foo: ["a@b: c"] (Slice)
------------------- New Profile -------------------
  ProfileID: 00000000000000000000000000000000
  Dropped attributes count: 0
  SampleType: samples
------------------- New Sample --------------------
  thread.name: a: b (Str)
  process.executable.name: wl-x (Str)
  process.pid: 12 (Int)
  thread.id: 13 (Int)
  Values: [4]
---------------------------------------------------
Instrumentation: kernel, Function: do_syscall_64
Instrumentation: native, Function: std::pair<int, long> f(int, char), File: /x.cpp, Line: 3
Instrumentation: native, Function: main
------------------- End Sample --------------------
------------------- New Sample --------------------
  process.pid: 12 (Int)
---------------------------------------------------
------------------- End Sample --------------------
------------------- End Profile -------------------
-------------- End Resource Profile ---------------
"""


class Dump(unittest.TestCase):
    def test_everything_of_a_sample_is_read(self):
        samples = textdump.parse(DUMP.splitlines())
        self.assertEqual(len(samples), 2)
        first = samples[0]
        self.assertEqual((first.pid, first.tid, first.exe, first.comm, first.value), (12, 13, "wl-x", "a: b", 4))
        self.assertEqual(first.user, ["std::pair<int, long> f(int, char)", "main"])
        self.assertEqual(first.kernel, ["do_syscall_64"])
        self.assertEqual(first.resource["host.name"], "box")
        self.assertEqual(samples[1].value, 1)

    def test_kernel_frames_below_user_frames_are_seen(self):
        sample = textdump.Sample({}, frames=[("native", "main"), ("kernel", "do_syscall_64")])
        self.assertFalse(sample.kernel_is_on_top())
        sample.frames.reverse()
        self.assertTrue(sample.kernel_is_on_top())

    def test_a_cut_dump_is_refused(self):
        lines = DUMP.splitlines()
        cut = next(i for i, line in enumerate(lines) if "End Sample" in line)
        with self.assertRaises(textdump.BadDump):
            textdump.parse(lines[:cut])
        with self.assertRaises(textdump.BadDump):
            textdump.parse(lines[:cut] + ["garbage"] + lines[cut:])


class Matching(unittest.TestCase):
    def chain(self, *frames, **keys):
        return chains.Chain({"frames": list(frames), **keys}, chains.Names("wl-x"))

    def whole(self, chain, *frames):
        return chain.match(frames)[0]

    def test_only_the_very_chain_matches(self):
        chain = self.chain("leaf", {"n": 3, "of": ["rec"]}, "main")
        self.assertTrue(self.whole(chain, "leaf", "rec", "rec", "rec", "main"))
        for wrong in (["leaf", "rec", "rec", "main"],  # one lost
                      ["leaf", "rec", "rec", "rec", "rec", "main"],  # one too many
                      ["leaf", "leaf", "rec", "rec", "rec", "main"],  # leaf doubled
                      ["rec", "rec", "rec", "main"],  # leaf lost
                      ["leaf", "rec", "rec", "rec"],  # cut at the root
                      ["leaf", "rec", "rec", "rec", "main", "_start"],
                      ["leaf", "rec", "main", "rec", "rec"],
                      []):
            self.assertFalse(self.whole(chain, *wrong), wrong)

    def test_quantifiers(self):
        chain = self.chain("?opt", "+/x./", "*any", "end")
        self.assertTrue(self.whole(chain, "x1", "end"))
        self.assertTrue(self.whole(chain, "opt", "x1", "x2", "any", "any", "end"))
        self.assertFalse(self.whole(chain, "opt", "end"))
        self.assertFalse(self.whole(chain, "opt", "opt", "x1", "end"))
        self.assertFalse(self.whole(chain, "x1x", "end"))
        self.assertTrue(self.whole(self.chain("*", "end"), "a", "b", "end"))
        self.assertFalse(self.whole(self.chain("*", "end"), "a", "b"))

    def test_libc_names_are_the_function_s_own(self):
        chain = self.chain("libc:qsort_r")
        self.assertTrue(self.whole(chain, "qsort_r"))
        self.assertFalse(self.whole(chain, "bsearch"))
        self.assertIn("qsort_r", elfsym.load(chains.LIBC).aliases("qsort_r"))
        self.assertTrue(self.whole(self.chain("libc:no_such_function"), "libc.so.6+0x1234"))
        self.assertFalse(self.whole(self.chain("libc:no_such_function"), "libm.so.6+0x1234"))
        self.assertFalse(self.whole(self.chain("libc:no_such_function=qsort_r"), "libc.so.6+0x1234"))
        self.assertTrue(self.whole(self.chain("libc:no_such_function|qsort_r"), "libc.so.6+0x1234"))
        self.assertTrue(self.whole(self.chain("libc:no_such_function|qsort_r"), "qsort_r"))

    def test_without_debug_files_only_the_dynamic_symbols_count(self):
        names = chains.Names("wl-x", debug_dir=None)
        start = chains.Chain({"frames": ["libc:__libc_start_call_main", "libc:__libc_start_main_impl=__libc_start_main"]}, names)
        self.assertTrue(self.whole(start, "libc.so.6+0x271d9", "__libc_start_main"))
        self.assertFalse(self.whole(start, "libc.so.6+0x271d9", "libc.so.6+0x27283"))

    def test_rust_names_lose_hash_and_generics_only(self):
        self.assertEqual(chains.normal_rust("a::b::h0123456789abcdef"), "a::b")
        self.assertEqual(chains.normal_rust("a[0f]::b::<<a[0f]::S<u32> as a[0f]::T>::f::{closure#0}>"), "a::b")
        self.assertEqual(chains.normal_rust("<a::S<u32> as a::T>::f"), "<a::S<u32>asa::T>::f")
        self.assertNotEqual(chains.normal_rust("a::b"), chains.normal_rust("a::c"))

    def test_a_stripped_program_is_resolved_by_its_twin(self):
        names = chains.Names("wl-x", symbols=sys.executable)
        some = next((a, n) for a, s, n in elfsym.load(sys.executable).functions if s > 8)
        chain = chains.Chain({"frames": [some[1]]}, names)
        self.assertTrue(self.whole(chain, f"wl-x+{some[0] + 4:#x}"))
        self.assertFalse(self.whole(chain, "wl-x+0x1"))
        self.assertFalse(self.whole(chain, f"wl-y+{some[0] + 4:#x}"))


class Sample:
    def __init__(self, user, value=1, tid=1, exe="wl-x", kernel=()):
        self.user, self.value, self.tid, self.exe, self.kernel = user, value, tid, exe, list(kernel)


class Verdicts(unittest.TestCase):
    def setUp(self):
        names = chains.Names("wl-x")
        self.chains = [chains.Chain({"frames": ["a", "main"], "tid": 1, "min_share": 0.4, "min_kernel_share": 0.5}, names),
                       chains.Chain({"frames": ["b", "main"], "tid": 2, "max_share": 0.3}, names)]

    def test_values_count(self):
        verdict = chains.check([Sample(["a", "main"], 99), Sample(["x", "main"], 1)], self.chains)
        self.assertEqual((verdict.samples, verdict.right, verdict.wrong_samples), (100, 99, 1))
        self.assertIn("want a, got x", verdict.wrong[0][2])

    def test_the_other_thread_s_chain_is_wrong(self):
        verdict = chains.check([Sample(["b", "main"], tid=1)], self.chains)
        self.assertEqual(verdict.right, 0)

    def test_shares_are_checked(self):
        verdict = chains.check([Sample(["a", "main"], 30), Sample(["b", "main"], 70, tid=2)], self.chains)
        self.assertEqual(len(chains.shares(verdict, self.chains)), 3)
        verdict = chains.check([Sample(["a", "main"], 80, kernel=["k"]), Sample(["b", "main"], 20, tid=2)], self.chains)
        self.assertEqual(chains.shares(verdict, self.chains), [])


if __name__ == "__main__":
    unittest.main()
