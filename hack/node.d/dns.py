#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The DNS of a node for tests: SERVICE.NAMESPACE.svc.cluster.local, from the API server, by kubectl.

    dns.py ADDRESS KUBECTL      serves UDP port 53 there until it is killed; KUBECONFIG as for kubectl

A Service has its cluster IP, a headless one the addresses of its ready endpoints. Names that do not exist in the
cluster are NXDOMAIN, and so are all names outside of it: the node has no way out. Record types other than A are empty.
Records live one second. The answer of kubectl is kept for half a second, so that a new Service is found at once.
"""
import json
import socket
import struct
import subprocess
import sys
import time

DOMAIN = ".svc.cluster.local"
GOOD_S = 0.5
A, IN = 1, 1


class Cluster:
    def __init__(self, kubectl):
        self.kubectl, self.asked, self.names = kubectl, 0.0, {}

    def get(self, what):
        done = subprocess.run([self.kubectl, "get", what, "-A", "-o", "json"], capture_output=True, text=True, timeout=10)
        return json.loads(done.stdout)["items"] if done.returncode == 0 else []

    def read(self):
        names, headless = {}, []
        for service in self.get("services"):
            name = f"{service['metadata']['name']}.{service['metadata']['namespace']}"
            address = service["spec"].get("clusterIP")
            names[name] = [] if address in (None, "None") else [address]
            headless += [name] if address == "None" else []
        for piece in self.get("endpointslices") if headless else []:
            service = piece["metadata"].get("labels", {}).get("kubernetes.io/service-name")
            name = f"{service}.{piece['metadata']['namespace']}"
            if name in headless:
                names[name] += [address for endpoint in piece["endpoints"] or [] for address in endpoint["addresses"]
                                if endpoint.get("conditions", {}).get("ready")]
        self.names = names

    def addresses(self, name):
        """Addresses of NAME, a Service of the cluster; None when there is no such name."""
        if not name.endswith(DOMAIN):
            return None
        if time.monotonic() - self.asked > GOOD_S:
            self.read()
            self.asked = time.monotonic()
        return self.names.get(name[:-len(DOMAIN)])


def question(packet):
    """(name, type, end offset) of the question in PACKET; ValueError when its name is invalid."""
    labels, at = [], 12
    while packet[at]:
        if packet[at] > 63:
            raise ValueError("a label that is none")
        labels.append(packet[at + 1:at + 1 + packet[at]].decode("ascii").lower())
        at += 1 + packet[at]
    return ".".join(labels), struct.unpack_from("!H", packet, at + 1)[0], at + 5


def answer(cluster, packet):
    name, kind, end = question(packet)
    found = cluster.addresses(name)
    records = [socket.inet_aton(a) for a in found or [] if kind == A]
    # An authoritative answer. "Recursion desired" is copied, and recursion is said to be available: resolvers warn otherwise.
    flags = 0x8480 | packet[2] << 8 & 0x100 | (0 if found is not None else 3)
    head = struct.pack("!2sHHHHH", packet[:2], flags, 1, len(records), 0, 0)
    return head + packet[12:end] + b"".join(struct.pack("!HHHIH", 0xc00c, A, IN, 1, 4) + r for r in records)


def main():
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((sys.argv[1], 53))
    cluster = Cluster(sys.argv[2])
    print("listens", flush=True)
    while True:
        packet, peer = server.recvfrom(4096)
        try:
            server.sendto(answer(cluster, packet), peer)
        except (ValueError, IndexError, struct.error) as e:
            print(f"{peer[0]}: {e!r}", flush=True)


main()
