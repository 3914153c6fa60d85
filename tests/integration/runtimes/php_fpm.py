# SPDX-License-Identifier: Apache-2.0
"""php-fpm with a pool of workers, and requests to it by FastCGI (the protocol's specification 1.0)."""
import os
import socket
import stat
import struct
import subprocess
import threading
import time

import php_stacks

PATIENCE = 200  # seconds; a busy machine may need them
BEGIN, END, PARAMS, STDIN, STDOUT = 1, 3, 4, 5, 6
CONFIG = """
[global]
error_log = /tmp/{name}.log
daemonize = no
[www]
listen = /tmp/{name}.sock
pm = static
pm.max_children = {workers}
pm.max_requests = {requests}
user = 0
group = 0
"""


def record(kind, content):
    return struct.pack(">BBHHBx", 1, kind, 1, len(content), 0) + content


def pair(name, value):
    name, value = name.encode(), value.encode()
    return b"".join(struct.pack(">I", len(x) | 1 << 31) for x in (name, value)) + name + value


def make_devices(root):
    """Makes the devices that php-fpm opens."""
    for name, minor in ("null", 3), ("urandom", 9):
        path = os.path.join(root, "dev", name)
        if not os.path.exists(path):
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, minor))


class Fpm:
    """Runs php-fpm of PHP VERSION in the root directory ROOT."""

    def __init__(self, version, root, workers=2, requests=0, php=()):
        make_devices(root)
        self.root, self.name, self.work = root, f"fpm-{os.getpid()}-{id(self)}", php_stacks.Work(root)
        self.known = php_stacks.chains(self.work.inside, version)
        config = os.path.join(root, "tmp", self.name + ".conf")
        with open(config, "w", encoding="utf-8") as f:
            f.write(CONFIG.format(name=self.name, workers=workers, requests=requests))
        program = f"/usr/sbin/php-fpm{version}"
        self.process = subprocess.Popen(["chroot", root, program, "-n", "-R", "-F", "-y", f"/tmp/{self.name}.conf", *php],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        preexec_fn=lambda: os.nice(10))
        deadline = time.monotonic() + PATIENCE
        while not os.path.exists(self.socket()) and time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"{program} ended: {self.process.returncode}: {self.log()}")
            time.sleep(0.05)

    def socket(self):
        return os.path.join(self.root, "tmp", self.name + ".sock")

    def log(self):
        path = os.path.join(self.root, "tmp", self.name + ".log")
        if not os.path.exists(path):
            return ""
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()[-2000:]

    def pids(self):
        """The pids of the workers."""
        path = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        with open(path, encoding="ascii") as f:
            return [int(pid) for pid in f.read().split()]

    def request(self, script, query=""):
        """Requests SCRIPT; the body of the answer."""
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(PATIENCE)
            s.connect(self.socket())
            params = b"".join(pair(name, value) for name, value in {
                "SCRIPT_FILENAME": script, "QUERY_STRING": query, "REQUEST_METHOD": "GET", "SCRIPT_NAME": script,
                "REQUEST_URI": script, "SERVER_PROTOCOL": "HTTP/1.1"}.items())
            s.sendall(record(BEGIN, struct.pack(">HB5x", 1, 0)) + record(PARAMS, params) + record(PARAMS, b"") +
                      record(STDIN, b""))
            answer, data = b"", b""
            while True:
                part = s.recv(65536)
                if not part:
                    break
                data += part
                while len(data) >= 8:
                    _, kind, _, length, padding = struct.unpack(">BBHHBx", data[:8])
                    if len(data) < 8 + length + padding:
                        break
                    if kind == STDOUT:
                        answer += data[8:8 + length]
                    data = data[8 + length + padding:]
                    if kind == END:
                        return answer.decode("utf-8", "replace").partition("\r\n\r\n")[2]
        raise RuntimeError("php-fpm has not answered: " + self.log())

    def close(self):
        for pid in self.pids() + [self.process.pid]:
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                pass
        self.process.wait()
        self.work.close()
        for suffix in ("conf", "sock", "log"):
            path = os.path.join(self.root, "tmp", f"{self.name}.{suffix}")
            if os.path.exists(path):
                os.unlink(path)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Busy(Fpm):
    """An Fpm whose workers are always busy. RESET: opcache is emptied from time to time. `done`: the number of requests."""

    def __init__(self, version, root, reset=False, iterations=4000, **options):
        super().__init__(version, root, **options)
        self.over, self.done, self.resets, self.failed = threading.Event(), 0, 0, None
        targets = [self.ask] * options.get("workers", 2) + ([self.reset] if reset else [])
        self.query = f"iterations={iterations}"
        self.threads = [threading.Thread(target=target, daemon=True) for target in targets]
        for thread in self.threads:
            thread.start()

    def ask(self):
        while not self.over.is_set():
            try:
                self.request(self.work.script(), self.query)
            except (OSError, RuntimeError) as e:
                if not self.over.is_set():
                    self.failed = str(e)
                return
            self.done += 1

    def reset(self):
        while not self.over.wait(0.3):
            try:
                self.resets += "true" in self.request(self.work.script("php_reset.php"))
            except (OSError, RuntimeError) as e:
                if not self.over.is_set():
                    self.failed = str(e)
                return

    def close(self):
        self.over.set()
        super().close()
        for thread in self.threads:
            thread.join()
