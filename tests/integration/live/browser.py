# SPDX-License-Identifier: Apache-2.0
"""Drives headless Chromium by the DevTools protocol over a pair of pipes (--remote-debugging-pipe: descriptors 3 and 4, JSON
messages that end with a NUL byte), so that no library is needed."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


class BrowserError(Exception):
    pass


class Browser:
    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="kiln-browser-")
        self.downloads = os.path.join(self.dir, "downloads")
        os.mkdir(self.downloads)
        to_read, self.to = os.pipe()
        self.of, of_write = os.pipe()
        # The child needs the pipes as 3 and 4. Move them above 4 first: dup2 of a descriptor to itself keeps close-on-exec.
        ours = [os.dup(to_read), os.dup(of_write)]
        while min(ours) < 5:
            ours = [os.dup(fd) for fd in ours]

        def place():
            os.dup2(ours[0], 3)
            os.dup2(ours[1], 4)

        self.log = open(os.path.join(self.dir, "log"), "wb")
        self.process = subprocess.Popen(
            [shutil.which("chromium"), "--headless=new", "--no-sandbox", "--remote-debugging-pipe", "--disable-gpu",
             "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions", "--disable-background-networking",
             "--disable-component-update", "--mute-audio", f"--user-data-dir={self.dir}/profile", "about:blank"],
            preexec_fn=place, pass_fds=(3, 4), stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        for fd in (to_read, of_write, *ours):
            os.close(fd)
        self.buffer, self.number, self.events = b"", 0, []
        self.session = None
        self.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=self.downloads)

    def page(self, url, width=1280, height=800, dark=True, phone=False, before=None):
        """Opens URL in a new tab and closes the last one. BEFORE: JavaScript that runs before the page's scripts."""
        if self.session:
            self.call("Target.closeTarget", targetId=self.target)
        self.session = None
        self.target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")
        self.events.clear()
        self.look(width, height, dark, phone)
        if before:
            self.call("Page.addScriptToEvaluateOnNewDocument", source=before)
        self.call("Page.navigate", url=url)

    def look(self, width, height, dark, phone=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if phone else 1,
                  mobile=phone)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session and not method.startswith(("Browser.", "Target.")):
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 180
        while True:
            answer = self.read(deadline)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def read(self, deadline):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.of], [], [], max(deadline - time.monotonic(), 0))
            data = os.read(self.of, 1 << 20) if ready else b""
            if not data:
                raise BrowserError("the browser does not answer")
            self.buffer += data
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def js(self, expression):
        """The value of a JavaScript expression in the page; a promise is awaited."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise BrowserError(result["exceptionDetails"].get("exception", {}).get("description", str(result)))
        return result["result"].get("value")

    def wait(self, expression, seconds=180):
        """Waits until a JavaScript expression is true: (its value, seconds waited)."""
        began = time.monotonic()
        while True:
            value = self.js(expression)
            if value:
                return value, time.monotonic() - began
            if time.monotonic() - began > seconds:
                raise BrowserError(f"not true after {seconds} s: {expression}")
            time.sleep(0.05)

    def key(self, key, code=None, number=0, text=None):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=code or key, windowsVirtualKeyCode=number,
                      **({"text": text} if text and kind == "keyDown" else {}))

    def click(self, x, y):
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self, path):
        data = base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(data)
        return data

    def complaints(self):
        """The errors of the page so far: exceptions, console errors, violations of the content security policy."""
        self.js("0")
        found = []
        for e in self.events:
            if e.get("method") == "Runtime.exceptionThrown":
                found.append(e["params"]["exceptionDetails"].get("exception", {}).get("description", "exception"))
            elif e.get("method") == "Log.entryAdded" and e["params"]["entry"]["level"] == "error":
                found.append(e["params"]["entry"]["text"])
        return found

    def downloaded(self, ending, seconds=180):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for name in os.listdir(self.downloads):
                if name.endswith(ending):
                    return os.path.join(self.downloads, name)
            time.sleep(0.05)
        raise BrowserError(f"no download ends with {ending}: {os.listdir(self.downloads)}")

    def close(self):
        self.process.kill()
        self.process.wait()
        self.log.close()
        for fd in (self.to, self.of):
            os.close(fd)
        shutil.rmtree(self.dir, ignore_errors=True)
