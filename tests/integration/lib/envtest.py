# SPDX-License-Identifier: Apache-2.0
"""A real Kubernetes API server for a test: hack/envtest from Python.

  with EnvTest(audit=True) as cluster:
      cluster.apply(manifest)
      since = cluster.mark()
      ...
      assert cluster.writes(since, user="system:serviceaccount:kiln-system:kiln-operator") == []
"""
import datetime
import json
import os
import pathlib
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[3]
SCRIPT = str(ROOT / "hack/envtest")
WRITES = ("create", "update", "patch", "delete", "deletecollection")
# API groups whose writes do not count: leases are renewed all the time, and reviews are queries made by POST.
NO_WRITES = ("coordination.k8s.io", "authentication.k8s.io", "authorization.k8s.io")
TIMEOUT = 120  # seconds for one command; "up" itself waits at most 60 for each server


def build():
    """The folder with the programs; building them takes minutes, once. On RuntimeError a test should be skipped with its
    text."""
    done = subprocess.run([SCRIPT, "build"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"no API server: {done.stderr.strip()[-600:]}")
    return done.stdout.strip()


class Failed(RuntimeError):
    """A command that failed: .status, .out, .err."""

    def __init__(self, command, done):
        super().__init__(f"{' '.join(map(str, command))}: status {done.returncode}: {done.stderr.strip()}")
        self.status, self.out, self.err = done.returncode, done.stdout, done.stderr


class EnvTest:
    """etcd and kube-apiserver, from up() to down(). FLAGS are kube-apiserver's. The servers also stop when the test's process
    ends, however it ends."""

    def __init__(self, audit=False, controllers=False, flags=()):
        self.options = ["--with", str(os.getpid())]
        self.options += ["--audit"] * audit + ["--controllers"] * controllers
        self.flags = [str(flag) for flag in flags]
        self.dir = self.kubeconfig = self.bin = None

    # ---- life

    def up(self):
        self.bin = build()
        self.dir = tempfile.mkdtemp(prefix="kiln-envtest-")
        try:
            self.kubeconfig = self._script("up", *self.options, "--", *self.flags)
        except BaseException:
            self.down()
            raise
        return self

    def down(self):
        if self.dir and os.path.exists(os.path.join(self.dir, "envtest.state")):
            self._script("down")
        if self.dir:
            shutil.rmtree(self.dir, ignore_errors=True)
        self.dir = self.kubeconfig = None

    def __enter__(self):
        return self.up()

    def __exit__(self, *_):
        self.down()

    def _script(self, command, *arguments):
        command = [SCRIPT, command, self.dir, *map(str, arguments)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT)
        if done.returncode:
            raise Failed(command, done)
        return done.stdout.strip()

    @property
    def state(self):
        """{key: number}: the ports and options that hack/envtest has written to envtest.state."""
        with open(os.path.join(self.dir, "envtest.state"), encoding="utf-8") as f:
            return {key: int(value) for key, value in (line.strip().split("=") for line in f)}

    @property
    def url(self):
        return f"https://127.0.0.1:{self.state['apiserver_port']}"

    @property
    def ca(self):
        return os.path.join(self.dir, "pki", "ca.crt")

    def env(self, kubeconfig=None, **more):
        """The environment for a program under test."""
        return {**os.environ, "KUBECONFIG": kubeconfig or self.kubeconfig, "PATH": f"{self.bin}:{os.environ['PATH']}",
                **more}

    def user(self, name, *groups):
        """The path of a new kubeconfig for user NAME in GROUPS."""
        return self._script("kubeconfig", name, *groups)

    def pid(self, server):
        """The pid of SERVER: "etcd", "apiserver" or "controllers"."""
        with open(os.path.join(self.dir, server + ".pid"), encoding="utf-8") as f:
            return int(f.read().split()[0])

    def log(self, server="apiserver"):
        with open(os.path.join(self.dir, "log", server + ".log"), encoding="utf-8", errors="replace") as f:
            return f.read()

    # ---- faults

    def kill_apiserver(self):
        self._script("kill-apiserver")

    def restart_apiserver(self, *flags, drop_flags=False):
        """Restarts the API server on the same port. FLAGS, when given, replace its flags; DROP_FLAGS removes them."""
        self._script("restart-apiserver", *(["--", *flags] if flags or drop_flags else []))

    def freeze(self, server="apiserver"):
        """Stops SERVER with SIGSTOP: it keeps its connections but answers nothing, as on a hung machine."""
        os.kill(self.pid(server), signal.SIGSTOP)

    def thaw(self, server="apiserver"):
        os.kill(self.pid(server), signal.SIGCONT)

    def compact(self):
        """Compacts etcd; the revision before which it has no history any more."""
        return int(self._script("compact"))

    def rotate_ca(self):
        self._script("rotate-ca")

    # ---- requests

    def kubectl(self, *arguments, input=None, kubeconfig=None, check=True, timeout=TIMEOUT):
        """Runs kubectl; its standard output, or with check=False the finished process."""
        command = [os.path.join(self.bin, "kubectl"), *map(str, arguments)]
        done = subprocess.run(command, input=input or "", capture_output=True, text=True, timeout=timeout,
                              env=self.env(kubeconfig))
        if not check:
            return done
        if done.returncode:
            raise Failed(command, done)
        return done.stdout

    def apply(self, manifest, *arguments, **options):
        """Applies MANIFEST on the server side: YAML text, an object or a list of objects."""
        if isinstance(manifest, list):
            manifest = {"apiVersion": "v1", "kind": "List", "items": manifest}
        text = manifest if isinstance(manifest, str) else json.dumps(manifest)
        return self.kubectl("apply", "--server-side", "-f", "-", *arguments, input=text, **options)

    def get(self, *arguments, **options):
        return json.loads(self.kubectl("get", *arguments, "-o", "json", **options))

    def request(self, path, method="GET", body=None, headers=None, timeout=120):
        """The body of an HTTP request as the admin, without kubectl. Raises urllib.error.HTTPError."""
        tls = ssl.create_default_context(cafile=self.ca)
        tls.load_cert_chain(os.path.join(self.dir, "pki", "admin.crt"), os.path.join(self.dir, "pki", "admin.key"))
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method,
                                         headers={"Content-Type": "application/json", **(headers or {})})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls))
        with opener.open(request, timeout=timeout) as answer:
            return answer.read()

    def token(self, namespace, account, audience=None, seconds=3600):
        """A ServiceAccount's token, from the TokenRequest API."""
        spec = {"expirationSeconds": seconds, "audiences": [audience] if audience else []}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        return json.loads(self.request(path, "POST", body))["status"]["token"]

    # ---- audit

    def audit(self, since=0):
        """The audit events from byte SINCE of the log on. The server logs a request just after its answer: settled() waits for
        that."""
        events = []
        with open(os.path.join(self.dir, "audit.log"), "rb") as f:
            f.seek(since)
            for line in f:
                if line.endswith(b"\n"):
                    events.append(json.loads(line))
        return events

    def mark(self):
        """The current end of the audit log: a SINCE for audit() and writes() that skips everything so far."""
        self.settled()
        return os.path.getsize(os.path.join(self.dir, "audit.log"))

    def settled(self, timeout=240):
        """Waits until the audit log has every request that was answered before the call."""
        name = "settled-" + datetime.datetime.now().strftime("%H%M%S%f")
        start = os.path.getsize(os.path.join(self.dir, "audit.log"))
        self.request("/version?" + name)
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if any(name in event["requestURI"] for event in self.audit(start)):
                return
            time.sleep(0.02)
        raise TimeoutError(f"no audit line after {timeout} s")

    def writes(self, since=0, user=None, resource=None):
        """The attempted writes, [(user, verb, resource, namespace/name, status)], without dry runs, leases and reviews (with
        RESOURCE, only those of that resource, leases too)."""
        self.settled()
        found = []
        for event in self.audit(since):
            ref, name = event.get("objectRef", {}), event["user"].get("username", "")
            kind = "/".join(filter(None, (ref.get("resource"), ref.get("subresource"))))
            if event["verb"] not in WRITES or "dryRun=" in event["requestURI"]:
                continue
            if ref.get("apiGroup") in NO_WRITES and resource is None:
                continue
            if user not in (None, name) or resource not in (None, kind):
                continue
            what = "/".join(filter(None, (ref.get("namespace"), ref.get("name"))))
            found.append((name, event["verb"], kind, what, event["responseStatus"]["code"]))
        return found
