# SPDX-License-Identifier: Apache-2.0
"""The OTLP encoder, read back by the independent decoder: test_otlp_decode.py PATH-TO-otlp_fixture."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import otlp_decode

FIXTURE = None


def encode(generation, *large):
    with tempfile.TemporaryDirectory() as d:
        subprocess.run([FIXTURE, generation, d, *map(str, large)], check=True)
        return [p.read_bytes() for p in sorted(pathlib.Path(d).iterdir())]


class SampleBatch(unittest.TestCase):
    def setUp(self):
        (self.data,) = encode("g6")
        self.samples = otlp_decode.decode(self.data)

    def test_no_rule_is_broken(self):
        for request in otlp_decode.messages(self.data):
            self.assertEqual(otlp_decode.check(request), [])

    def test_values_add_up(self):
        cpu = [s for s in self.samples if s["type"] == "samples"]
        self.assertEqual(sum(s["value"] for s in cpu), 6)
        self.assertEqual({s["period"] for s in cpu}, {("cpu", "nanoseconds", 50000000)})
        (off,) = [s for s in self.samples if s["type"] == "off_cpu"]
        self.assertEqual((off["value"], off["unit"], off["period"]), (1500, "nanoseconds", None))

    def test_container_sample(self):
        s = next(s for s in self.samples if s["attributes"]["thread.id"] == 2832)
        self.assertEqual(s["value"], 3)
        self.assertEqual(s["resource"]["k8s.pod.name"], "kube-apiserver-kube-control-plane")
        self.assertEqual(
            s["resource"]["container.image.repo_digests"],
            ["registry.k8s.io/kube-apiserver@sha256:e04f6223"],
        )
        self.assertEqual(
            list(s["attributes"].items()),
            [
                ("thread.name", "kube-apiserver"),
                ("process.executable.name", "kube-apiserver"),
                ("process.executable.path", "/usr/local/bin/kube-apiserver"),
                ("process.pid", 2751),
                ("thread.id", 2832),
            ],
        )
        self.assertEqual(
            [(f["type"], f["name"]) for f in s["frames"]],
            [
                ("kernel", "x64_sys_call"),
                ("kernel", "do_syscall_64"),
                ("go", "internal/runtime/syscall.Syscall6"),
                ("go", "syscall.write"),
                ("go", "runtime.goexit"),
            ],
        )
        self.assertEqual(s["frames"][2]["mapping"]["build_ids"], {"go": "abc/def", "htlhash": "00112233"})
        self.assertEqual(s["scope"][0], "kiln")

    def test_inlined_frames(self):
        s = next(s for s in self.samples if s["type"] == "off_cpu")
        self.assertEqual(
            [(f["name"], f["file"], f["line"], f["inlined"]) for f in s["frames"]],
            [
                ("std::max<int>(int const&, int const&)", "max.h", 5, True),
                ("work(int)", "work.cc", 12, False),
                ("main", "work.cc", 40, False),
                ("<module>", "app.py", 1, False),
            ],
        )


class Framing(unittest.TestCase):
    def test_split_requests_hold_everything_once(self):
        parts = encode("g6", 500, 30000)
        self.assertGreater(len(parts), 3)
        samples = [s for part in parts for s in otlp_decode.decode(part)]
        self.assertEqual(sum(s["value"] for s in samples), sum(i % 7 + 1 for i in range(500)))
        self.assertEqual(len({s["attributes"]["thread.id"] for s in samples}), 500)
        for part in parts:
            self.assertEqual([c for r in otlp_decode.messages(part) for c in otlp_decode.check(r)], [])

    def test_file_exporter_framing(self):
        parts = encode("g6", 500, 30000)
        framed = b"".join(len(p).to_bytes(4, "big") + p for p in parts)
        self.assertEqual(len(otlp_decode.decode(framed)), 500)

    def test_an_older_generation_does_not_pass(self):
        (data,) = encode("g5")
        try:
            values = [s["value"] for s in otlp_decode.decode(data)]
        except Exception:
            return
        self.assertNotEqual(sum(values), 1506)


if __name__ == "__main__":
    FIXTURE = sys.argv.pop(1)
    unittest.main()
