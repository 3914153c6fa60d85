# SPDX-License-Identifier: Apache-2.0
"""A TCP proxy in front of the API server that can break connections."""
import random
import selectors
import socket
import struct
import threading


class Proxy:
    """Passes bytes on unchanged, until cut() is called or a connection has used up its allowance."""

    def __init__(self, port, seed=1):
        self.target = ("127.0.0.1", port)
        self.random = random.Random(seed)
        self.lock = threading.Lock()
        self.pairs = set()  # (client, server)
        self.refusing = False
        self.cuts = self.cut_answers = 0
        self.allowance = None  # (low, high): bytes of answers after which a connection is reset
        self.flowing = threading.Event()
        self.flowing.set()
        self.listener = None
        self.port = 0
        self.listen()

    def listen(self):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        self.port = listener.getsockname()[1]
        listener.listen(64)
        self.listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def _accept(self, listener):
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self.target, timeout=5)
                server.settimeout(None)
            except OSError:
                self._reset(client)
                continue
            with self.lock:
                pair = (client, server)
                self.pairs.add(pair)
            threading.Thread(target=self._serve, args=(pair,), daemon=True).start()

    @staticmethod
    def _reset(*sockets):
        for s in sockets:
            try:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                s.close()
            except OSError:
                pass

    def _serve(self, pair):
        client, server = pair
        left = self.random.randint(*self.allowance) if self.allowance else None
        with selectors.DefaultSelector() as selector:
            selector.register(client, selectors.EVENT_READ, server)
            selector.register(server, selectors.EVENT_READ, client)
            try:
                while True:
                    while not self.flowing.wait(0.2):
                        if pair not in self.pairs:
                            return
                    for key, _ in selector.select(1):
                        if not self.flowing.is_set():
                            break
                        data = key.fileobj.recv(65536)
                        if not data:
                            return
                        if key.fileobj is server and left is not None:
                            data = data[:left]
                            left -= len(data)
                        key.data.sendall(data)
                        if left == 0:
                            self.cut_answers += 1
                            return
                    if pair not in self.pairs:
                        return
            except (OSError, ValueError):
                pass
            finally:
                with self.lock:
                    self.pairs.discard(pair)
                self._reset(client, server)

    def cut(self, how_many=None):
        """Resets HOW_MANY random connections, or all; returns how many were reset."""
        with self.lock:
            pairs = list(self.pairs)
            if how_many is not None:
                pairs = self.random.sample(pairs, min(how_many, len(pairs)))
            self.pairs.difference_update(pairs)
        for pair in pairs:
            for s in pair:
                try:  # shutdown() wakes the connection's thread
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    s.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
        self.cuts += len(pairs)
        return len(pairs)

    def refuse(self):
        """Stops listening and resets all connections."""
        listener, self.listener = self.listener, None
        if listener:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self.cut()

    def hold(self):
        """Simulates a network partition: no bytes pass and no connection is closed. release() delivers the bytes late."""
        self.flowing.clear()

    def release(self):
        self.flowing.set()

    def allow(self):
        self.allowance = None
        if not self.listener:
            self.listen()

    def close(self):
        self.refuse()
        self.release()
