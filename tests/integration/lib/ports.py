# SPDX-License-Identifier: Apache-2.0
"""TCP ports of the loopback for programs that are about to be started.

A port that bind(0) gives is one of those that the kernel hands to outgoing connections: by the time the program listens, a
connection of somebody else may have it. These are below that range (hack/envtest has 20000 and up for its servers).
Processes that run side by side never get the same one: each keeps an abstract Unix socket with the port's number for as long
as it lives. The kernel takes that back with the process, and it belongs to the network namespace, as ports do."""

import errno
import pathlib
import random
import socket

FIRST, END = 11000, 20000
_held = []


def _range():
    """END, or less where outgoing connections begin below it."""
    first_outgoing = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    return range(FIRST, min(END, first_outgoing) if first_outgoing > FIRST else END)


def _claim(port):
    """False when another process, or this one before, was given it."""
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
    """One that nobody listens on, and that no caller was given before."""
    ports = _range()
    first = random.randrange(len(ports))
    for port in (*ports[first:], *ports[:first]):
        if _claim(port) and _is_free(port):
            return port
    raise RuntimeError(f"no free port of {ports.start} to {ports.stop - 1}")
