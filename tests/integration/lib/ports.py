# SPDX-License-Identifier: Apache-2.0
"""Free TCP ports of the loopback for programs that are about to be started.

bind(0) gives a port of the range for outgoing connections: by the time the program listens, another connection may use it.
free_port() gives ports below that range (hack/envtest uses 20000 and up for its servers). Concurrent processes never get
the same port: each process holds an abstract Unix socket named after the port for as long as it lives. The kernel releases
that socket with the process, and such names belong to the network namespace, as ports do."""

import errno
import pathlib
import random
import socket

FIRST, END = 11000, 20000
_held = []


def _range():
    """The ports from FIRST to END, or to the first port of outgoing connections when that is lower."""
    first_outgoing = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    return range(FIRST, min(END, first_outgoing) if first_outgoing > FIRST else END)


def _claim(port):
    """Reserves PORT for this process; False when a process (this one included) already has it."""
    name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        name.bind(f"\0kiln-test-port-{port}")
    except OSError as e:
        name.close()
        if e.errno != errno.EADDRINUSE:
            raise
        return False
    _held.append(name)
    return True


def _is_free(port):
    with socket.socket() as s:
        try:
            s.bind(("", port))
        except OSError:
            return False
    return True


def free_port():
    """A port on which nobody listens and which no living process has been given."""
    ports = _range()
    first = random.randrange(len(ports))
    for port in (*ports[first:], *ports[:first]):
        if _claim(port) and _is_free(port):
            return port
    raise RuntimeError(f"no free port of {ports.start} to {ports.stop - 1}")
