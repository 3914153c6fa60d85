# SPDX-License-Identifier: Apache-2.0
"""tests/integration/lib/ports.py: concurrent processes get distinct free ports."""

import pathlib
import socket
import subprocess
import sys
import unittest

LIB = pathlib.Path(__file__).resolve().parents[2] / "integration/lib"
sys.path.insert(0, str(LIB))
import ports  # noqa: E402

TAKE = "import ports\nprint(*(ports.free_port() for _ in range({})), flush=True)\ninput()"


class Ports(unittest.TestCase):
    def test_no_two_processes_get_the_same_one(self):
        mine = {ports.free_port() for _ in range(100)}
        others = [subprocess.Popen([sys.executable, "-c", TAKE.format(500)], cwd=LIB, text=True, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE) for _ in range(4)]
        taken = [int(port) for other in others for port in other.stdout.readline().split()]
        for other in others:
            other.communicate("\n")
        self.assertEqual(len(mine), 100)
        self.assertEqual(len(mine | set(taken)), 100 + 4 * 500)

    def test_they_are_below_those_of_outgoing_connections(self):
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
            self.assertLess(ports.free_port(), client.getsockname()[1])

    def test_one_that_somebody_listens_on_is_not_free(self):
        port = ports.free_port()
        self.assertTrue(ports._is_free(port))
        with socket.create_server(("127.0.0.1", port)):
            self.assertFalse(ports._is_free(port))


if __name__ == "__main__":
    unittest.main()
