# SPDX-License-Identifier: Apache-2.0
"""The Python interpreters of this machine, and the check of samples against the call chains of python_work.py."""
import contextlib
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))
EVAL = re.compile(r"_PyEval_EvalFrameDefault(\.cold)?")
BETWEEN = "on the way"
HELPERS = {"slice_end"}
ROOTS = {"_start", "clone", "clone3", "__clone", "__clone3"}


def interpreters():
    """{version: path}; Debian's is called "debian"."""
    found = {}
    for path in glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin/python3")):
        found[path.split("/")[-3]] = path
    if os.path.exists("/usr/bin/python3.11"):
        found["debian"] = "/usr/bin/python3.11"
    return dict(sorted(found.items(), key=lambda item: [int(n) for n in re.findall(r"\d+", item[0])]))


def next_release():
    """(a root directory with the interpreters of Debian's next release, fetched if it is missing; None), or (None; why it is
    not available)."""
    script = os.path.join(HERE, "..", "..", "..", "hack", "lib", "python.sh")
    done = subprocess.run([script], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode == 77:
        return None, done.stderr.strip()
    if done.returncode:
        raise RuntimeError(f"{script}: {done.stderr[-500:]}")
    return done.stdout.strip(), None


class Program:
    """Runs python_work.py with an interpreter, or another PROGRAM that reports its chains; with the root directory ROOT."""

    def __init__(self, program, *arguments, env=None, root=None):
        script = [os.path.join(HERE, "python_work.py")] if re.search("python3[^/]*$", program) else []
        self.inside = None
        if root:
            self.inside = tempfile.mkdtemp(dir=os.path.join(root, "tmp"))
            script = [os.path.relpath(shutil.copy(path, self.inside), root) for path in script]
            program, script = "chroot", [root, program, *("/" + path for path in script)]
        self.start([program, *script, *arguments], env)

    def start(self, command, env):
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, **(env or {})}, start_new_session=True,
                                        preexec_fn=lambda: os.nice(10))  # a lower priority than the agent's
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{command} ended at once: {self.process.wait()}")
        self.said = json.loads(line)
        self.pid = self.said["pid"]

    def rest(self):
        """Kills the program; the JSON objects that it has printed since its first line."""
        self.process.kill()
        return [json.loads(line) for line in self.process.stdout if line.startswith("{")]

    def close(self):
        # Kill the workers, too.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()
        if self.inside:
            shutil.rmtree(self.inside)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def python_frames(sample):
    """[name, file, line] of the Python frames, leaf first."""
    return [[name, *place] for (kind, name), place in zip(sample.frames, sample.places) if kind == "cpython"]


def matches(frames, chain, file):
    """Whether FRAMES are those of CHAIN. "*" stands for any frames."""
    if not chain:
        return not frames
    if chain[0] == "*":
        return any(matches(frames[i:], chain[1:], file) for i in range(len(frames) + 1))
    if not frames:
        return False
    name, place, line = frames[0]
    if name != chain[0][0] or place != file or line not in chain[0][1]:
        return False
    return matches(frames[1:], chain[1:], file)


def wrong(sample, said):
    """Why SAMPLE matches none of the chains of the program; None when it matches one."""
    kinds = [kind for kind, _ in sample.frames]
    if "abort-marker" in kinds:
        return "cut: " + sample.frames[kinds.index("abort-marker")][1]
    if not sample.user or sample.user[-1] not in ROOTS and not re.search(r"\+0x[0-9a-f]+$", sample.user[-1]):
        return "no root: " + (sample.user[-1] if sample.user else "no frames")
    frames = python_frames(sample)
    if not frames:
        return "no frames of Python"
    if not any(linear(frames, chain, said["file"]) for chain in said["chains"]):
        if any(on_the_way(frames, chain, said["file"]) for chain in said["chains"]):
            return f"{BETWEEN}: {frames[0][0]}:{frames[0][2]}"
        return "other frames: " + " < ".join(f"{name}:{line}" for name, _, line in frames[:6])
    # Each native frame of the interpreter loop has its Python frames, except one that is just entered or left.
    evals = [i for i, (kind, name) in enumerate(sample.frames) if kind == "native" and EVAL.fullmatch(name)]
    for i in evals[1:]:
        if sample.frames[i - 1][0] != "cpython":
            return "a native frame without Python's"
    return None


def on_the_way(frames, chain, file):
    """Whether the thread is on its way to CHAIN's leaf or back: the callers are those of the chain, each at its line; the leaf
    is at any line of its function, or is a helper that the last function of the chain calls."""
    below = list(frames)
    if chain[-1] == "*":  # drop the frames that called the program
        while below and (below[-1][0] != chain[-2][0] or below[-1][1] != file):
            below.pop()
    chain = [want for want in chain if want != "*"]
    for (name, place, line), want in zip(below[::-1], chain[::-1]):
        if name != want[0] or place != file:
            return name in HELPERS or place != file
        if line not in want[1]:
            return [name, place, line] == frames[0]
    return 0 < len(below) < len(chain)


def linear(frames, chain, file):
    """As matches(), without recursion where there is no "*"."""
    i = 0
    for i, want in enumerate(chain):
        if want == "*":
            return matches(frames[i:], chain[i:], file)
        if i >= len(frames) or frames[i][0] != want[0] or frames[i][1] != file or frames[i][2] not in want[1]:
            return False
    return len(frames) == len(chain)


def config(hz=97, seconds=2, more="", port=0):
    """The configuration of an agent that prints names, files and lines. PORT: of health and metrics; 0: none."""
    health = f'extensions:\n  health_check: {{endpoint: "127.0.0.1:{port}"}}' if port else ""
    return f"""
receivers:
  profiling:
    samples_per_second: {hz}
    reporter_interval: {seconds}s
    unwind_table_memory_mib: 96
{more}
{health}
exporters:
  debug: {{export_function_file: true, ignore_profiles_without_container_id: false}}
service:
  extensions: [{"health_check" if port else ""}]
  pipelines:
    profiles: {{receivers: [profiling], exporters: [debug]}}
"""
