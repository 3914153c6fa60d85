# SPDX-License-Identifier: Apache-2.0
"""Ruby's interpreters, and the check of samples against the call chains of ruby_work.rb."""
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))
BETWEEN = "on the way"
ROOTS = {"_start", "clone", "clone3", "__clone", "__clone3"}
VERSIONS = ["2.7", "3.1", "3.3", "3.4"]


def root_of(version):
    """(a root directory with VERSION, fetched if it is missing; None), or (None; why it is not available)."""
    script = os.path.join(HERE, "..", "..", "..", "hack", "lib", "ruby.sh")
    done = subprocess.run([script, version], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode == 77:
        return None, done.stderr.strip()
    if done.returncode:
        raise RuntimeError(f"{script}: {done.stderr[-500:]}")
    return done.stdout.strip(), None


class Program:
    """Runs a script with Ruby VERSION in the root directory ROOT; the script reports its pid and chains as JSON."""

    def __init__(self, version, root, *arguments, script="ruby_work.rb", ruby=(), env=None):
        self.inside = tempfile.mkdtemp(dir=os.path.join(root, "tmp"))
        path = shutil.copy(os.path.join(HERE, script), self.inside)
        command = ["chroot", root, f"/usr/bin/ruby{version}", *ruby, "/" + os.path.relpath(path, root), *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True, env={**os.environ, **(env or {})},
                                        start_new_session=True,
                                        preexec_fn=lambda: os.nice(10))  # a lower priority than the agent's
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"ruby {version} ended at once: {self.process.wait()}")
        self.said = json.loads(line)
        self.pid = self.said["pid"]

    def close(self):
        # Kill the workers, too.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()
        shutil.rmtree(self.inside)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def ruby_frames(sample):
    """[name, file, line] of the Ruby frames, leaf first."""
    return [[name, *place] for (kind, name), place in zip(sample.frames, sample.places) if kind == "ruby"]


def is_frame(frame, want):
    name, file, line = frame
    wanted, lines, place = want
    if wanted.startswith("/"):
        return name == wanted[1:] or (wanted.endswith("*") and name.startswith(wanted[1:-1]))
    if name != wanted:
        return False
    return file == place and line in lines if lines else file == "" or file.startswith("<internal:")


def matches(frames, chain):
    """Whether FRAMES are those of CHAIN. "*" stands for any frames, a name that begins with a slash for an optional frame."""
    states = {0}
    for frame in [*frames, None]:
        pending, states = sorted(states), set()
        seen = set()
        while pending:
            i = pending.pop()
            if i in seen:
                continue
            seen.add(i)
            if i == len(chain):
                if frame is None:
                    return True
                continue
            name = chain[i][0]
            if name == "*" or name.startswith("/"):
                pending.append(i + 1)
            if frame is None:
                continue
            if name == "*":
                states.add(i)
            elif is_frame(frame, chain[i]):
                states.add(i + 1)
    return False


def on_the_way(frames, chain):
    """Whether the thread is on its way to CHAIN's leaf or back: the callers are those of the chain, each at its line; the leaf
    is at any line of its function, or is a method that the last function of the chain calls."""
    frames, chain = frames[::-1], [want for want in chain[::-1] if want[0][0] not in "*/"]
    for i, frame in enumerate(frames):
        if i == len(chain):
            return False
        if is_frame(frame, chain[i]):
            continue
        # The innermost frame may be at another line.
        return i == len(frames) - 1 and i > 0
    return len(frames) < len(chain)


def wrong(sample, said):
    """Why SAMPLE matches none of the chains of the program; None when it matches one."""
    kinds = [kind for kind, _ in sample.frames]
    if "abort-marker" in kinds:
        return "cut: " + sample.frames[kinds.index("abort-marker")][1]
    if not sample.user or sample.user[-1] not in ROOTS and not re.search(r"\+0x[0-9a-f]+$", sample.user[-1]):
        return "no root: " + (sample.user[-1] if sample.user else "no frames")
    frames = ruby_frames(sample)
    if not frames:
        # Ruby itself has threads: a timer, and from 3.3 on threads that wait for work.
        return "no frames of Ruby" if sample.tid == sample.pid else f"{BETWEEN}: a thread without Ruby"
    if not any(matches(frames, chain) for chain in said["chains"]):
        if any(on_the_way(frames, chain) for chain in said["chains"]):
            return f"{BETWEEN}: {frames[0][0]}:{frames[0][2]}"
        return "other frames: " + " < ".join(f"{name}:{line}" for name, _, line in frames[:8]) + \
            (" .. " + " < ".join(f"{name}:{line}" for name, _, line in frames[-3:]) if len(frames) > 8 else "")
    # A C method has native frames on its leaf side, its own or those of a method that it calls; at the beginning of a
    # thread they are on its root side.
    places = [place if kind == "ruby" else None for (kind, _), place in zip(sample.frames, sample.places)]
    last = max((i for i, place in enumerate(places) if place and place[0]), default=0)
    for i in range(1, last):
        if places[i] and not places[i][0] and places[i - 1] and places[i - 1][0]:
            return f"no native frames of {sample.frames[i][1]}"
    return None


def config(hz=97, seconds=2, more="", port=0):
    """The configuration of an agent that prints names, files and lines. PORT: of health and metrics; 0: none."""
    health = f'extensions:\n  health_check: {{endpoint: "127.0.0.1:{port}"}}' if port else ""
    return f"""
receivers:
  profiling:
    samples_per_second: {hz}
    reporter_interval: {seconds}s
{more}
{health}
exporters:
  debug: {{export_function_file: true, ignore_profiles_without_container_id: false}}
service:
  extensions: [{"health_check" if port else ""}]
  pipelines:
    profiles: {{receivers: [profiling], exporters: [debug]}}
"""
