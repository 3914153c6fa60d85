# SPDX-License-Identifier: Apache-2.0
"""Ruby's interpreters, and whether a sample shows what ruby_work.rb is written to do."""
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
    """The root directory with this version, fetched when it is missing, and None; or None and why it cannot be had."""
    script = os.path.join(HERE, "..", "..", "..", "hack", "lib", "ruby.sh")
    done = subprocess.run([script, version], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode == 77:
        return None, done.stderr.strip()
    if done.returncode:
        raise RuntimeError(f"{script}: {done.stderr[-500:]}")
    return done.stdout.strip(), None


class Program:
    """A script under Ruby VERSION, with the root directory that it came with; it says what it is as JSON."""

    def __init__(self, version, root, *arguments, script="ruby_work.rb", ruby=(), env=None):
        self.inside = tempfile.mkdtemp(dir=os.path.join(root, "tmp"))
        path = shutil.copy(os.path.join(HERE, script), self.inside)
        command = ["chroot", root, f"/usr/bin/ruby{version}", *ruby, "/" + os.path.relpath(path, root), *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True, env={**os.environ, **(env or {})},
                                        start_new_session=True,
                                        preexec_fn=lambda: os.nice(10))  # the agent has to get to its work
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"ruby {version} ended at once: {self.process.wait()}")
        self.said = json.loads(line)
        self.pid = self.said["pid"]

    def close(self):
        # Its workers too.
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
    """[name, file, line] of each of Ruby's own, leaf first."""
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
    """Are FRAMES those of CHAIN? "*" stands for any frames, a name with a slash for one or none."""
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
    """Is the thread on its way to CHAIN's leaf or back? The callers are those of the chain, each at its line; the leaf is
    anywhere in its function, or it is a method that the last of the chain's calls to get there."""
    frames, chain = frames[::-1], [want for want in chain[::-1] if want[0][0] not in "*/"]
    for i, frame in enumerate(frames):
        if i == len(chain):
            return False
        if is_frame(frame, chain[i]):
            continue
        # Its caller may have gone on to another line by now.
        return i == len(frames) - 1 and i > 0
    return len(frames) < len(chain)


def wrong(sample, said):
    """Why SAMPLE is none of the chains that the program has; None when it is one."""
    kinds = [kind for kind, _ in sample.frames]
    if "abort-marker" in kinds:
        return "cut: " + sample.frames[kinds.index("abort-marker")][1]
    if not sample.user or sample.user[-1] not in ROOTS and not re.search(r"\+0x[0-9a-f]+$", sample.user[-1]):
        return "no root: " + (sample.user[-1] if sample.user else "no frames")
    frames = ruby_frames(sample)
    if not frames:
        # Ruby has threads of its own: a timer, from 3.3 on those that wait for work.
        return "no frames of Ruby" if sample.tid == sample.pid else f"{BETWEEN}: a thread without Ruby"
    if not any(matches(frames, chain) for chain in said["chains"]):
        if any(on_the_way(frames, chain) for chain in said["chains"]):
            return f"{BETWEEN}: {frames[0][0]}:{frames[0][2]}"
        return "other frames: " + " < ".join(f"{name}:{line}" for name, _, line in frames[:8]) + \
            (" .. " + " < ".join(f"{name}:{line}" for name, _, line in frames[-3:]) if len(frames) > 8 else "")
    # A method in C has its own native frames before it, or those of one that it calls; at a thread's beginning they are
    # behind it.
    places = [place if kind == "ruby" else None for (kind, _), place in zip(sample.frames, sample.places)]
    last = max((i for i, place in enumerate(places) if place and place[0]), default=0)
    for i in range(1, last):
        if places[i] and not places[i][0] and places[i - 1] and places[i - 1][0]:
            return f"no native frames of {sample.frames[i][1]}"
    return None


def config(hz=97, seconds=2, more="", port=0):
    """Of an agent that prints names, files and lines, and has its metrics at PORT when one is given."""
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
