# SPDX-License-Identifier: Apache-2.0
"""The call chains of php_work.php, and the check of samples against them."""
import json
import os
import re
import shutil
import subprocess
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))
FILES = ["php_work.php", "php_work_81.php", "php_work_84.php", "php_include.php", "php_library.php"]
VERSIONS = ["7.4", "8.2", "8.4", "8.5", "8.6"]
ROOTS = {"_start"}
LOOP = "execute_ex"
INTERNAL = ("", [0])
UNNAMED = "[php: no name]"


def root_of(version):
    """(a root directory with VERSION, fetched if it is missing; None), or (None; why it is not available)."""
    script = os.path.join(HERE, "..", "..", "..", "hack", "lib", "php.sh")
    done = subprocess.run([script, version], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode == 77:
        return None, done.stderr.strip()
    if done.returncode:
        raise RuntimeError(f"{script}: {done.stderr[-500:]}")
    return done.stdout.strip(), None


def options(version, opcache=False, jit=None):
    """The options that make PHP VERSION use opcache and its JIT compiler (JIT: "tracing" or "function")."""
    chosen = []
    if version == "7.4":
        chosen += ["-d", "extension=json.so"]
    if opcache or jit:
        if version < "8.5":
            chosen += ["-d", "zend_extension=opcache.so"]
        chosen += ["-d", "opcache.enable=1", "-d", "opcache.enable_cli=1", "-d", "opcache.file_update_protection=0"]
    else:
        chosen += ["-d", "opcache.enable=0"]
    if jit:
        chosen += ["-d", "opcache.jit_buffer_size=64M", "-d", f"opcache.jit={jit}"]
    return chosen


class Work:
    """A directory in ROOT with the files of php_work.php; `inside` is its path there."""

    def __init__(self, root):
        self.path = tempfile.mkdtemp(dir=os.path.join(root, "tmp"))
        os.chmod(self.path, 0o755)
        self.inside = "/" + os.path.relpath(self.path, root)
        for file in FILES + ["php_reset.php"]:
            shutil.copy(os.path.join(HERE, file), self.path)

    def script(self, name="php_work.php"):
        return f"{self.inside}/{name}"

    def close(self):
        shutil.rmtree(self.path)


class Program:
    """Runs php_work.php with PHP VERSION in the root directory ROOT."""

    def __init__(self, version, root, *arguments, php=(), iterations=4000):
        self.work = Work(root)
        self.process = subprocess.Popen(
            ["chroot", root, f"/usr/bin/php{version}", "-n", *php, self.work.script(), str(iterations), *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            preexec_fn=lambda: os.nice(10))  # a lower priority than the agent's
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"php {version} ended at once: {self.process.wait()}")
        self.pid = json.loads(line)["pid"]
        self.known = chains(self.work.inside, version)

    def pids(self):
        return [self.pid]

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.work.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def marks():
    """{file: {mark: line}} of the "AT x" comments."""
    found = {}
    for file in FILES:
        with open(os.path.join(HERE, file), encoding="utf-8") as f:
            found[file] = {m.group(1): i for i, line in enumerate(f, 1) if (m := re.search(r"// AT (\w+)$", line))}
    return found


def chains(where, version):
    """{chain: [alternatives]} of the files in the directory WHERE. An alternative is a list of (function, file, lines), leaf
    first."""
    at = marks()

    def line(mark):
        return next((file, known[mark]) for file, known in at.items() if mark in known)

    def frame(name, mark, upto=None, prefix="Work\\"):
        file, first = line(mark)
        last = line(upto)[1] if upto else first
        return prefix + name, os.path.join(where, file), list(range(first, last + 1))

    def closure(start, mark):
        file, first = line(start)
        path = os.path.join(where, file)
        return f"{{closure:{path}:{first}}}", path, [line(mark)[1]]

    def internal(name):
        return (name, *INTERNAL)

    def place(name, mark):
        file, first = line(mark)
        path = os.path.join(where, file)
        return name.replace("FILE", path), path, [first]

    burn = frame("burn", "burn_first", "burn_last")
    area = [burn, frame("Shape::area", "shape_area"), frame("Circle::area", "circle_area")]
    walk = [burn, frame("Walk::current", "walk_current")]
    dying = [burn, frame("Dying::__destruct", "destruct")]
    fiber = [burn, frame("fiber_body", "fiber_body"), internal("Fiber::start")]

    def magic(method, mark, use, *between):
        return [burn, frame("Magic::" + method, mark), *between, frame("magic", use)]

    work = os.path.join(where, "php_work.php")
    known = {
        "recursion": [[burn, frame("recurse", "recurse_leaf")] + [frame("recurse", "recurse_call")] * 30 +
                      [frame("recursion", "recursion")]],
        "classes": [[*area, frame("Shape::unit", "unit"), frame("classes", "classes")]],
        "traits": [[burn, frame("Order::log", "log"), frame("Order::boot", "boot"), frame("traits", "traits")]],
        "closures": [[burn, closure("inner_start", "inner"), closure("outer_start", "outer"),
                      frame("closures", "closures")]],
        "bound": [[burn, frame("Binder::work", "bound_work"), closure("bound_start", "bound"), frame("bound", "bound_call")]],
        "arrows": [[burn, closure("arrow", "arrow"), frame("arrows", "arrows")]],
        "sorts": [[burn, closure("sorts", "sorts"), internal("usort"), frame("sorts", "sorts")]],
        "callbacks": [[burn, frame("mapped", "mapped"), internal("array_map"), frame("callbacks", "callbacks")]],
        "nested": [[*area, internal("array_map"), frame("nested_inner", "nested_inner"), internal("call_user_func_array"),
                    *how, frame("nested", "nested")] for how in ([], [internal("call_user_func")])],
        "replaces": [[burn, closure("replaces", "replaces"), internal("preg_replace_callback"),
                      frame("replaces", "replaces")]],
        # PCRE compiles the expression; such code has no unwind information about its caller.
        "expressions": [[*leaf, internal("preg_match_all"), frame("expressions", "expressions")]
                        for leaf in ([internal("(regular expression)")], [])] +
        [[internal("str_repeat"), frame("expressions", "expressions_text")]],
        "hashes": [[internal(name), frame("hashes", "hashes")] for name in ("hash", "str_repeat")],
        "internal_callbacks": [[internal("md5"), internal("array_map"), frame("internal_callbacks", "internal_callbacks")],
                               [internal("str_repeat"), frame("internal_callbacks", "callbacks_text")]],
        "generators": [[burn, frame("numbers", "numbers"), frame("generators", "generators")]],
        "generators_nested": [[burn, frame("numbers", "numbers"), internal("Generator::current"),
                               frame("first_of", "first_of"), internal("iterator_to_array"),
                               frame("generators_nested", "generators_nested")],
                              # The generators are created before they run.
                              [frame("numbers", "numbers"), frame("generators_nested", "generators_nested")],
                              [frame("first_of", "first_of"), frame("generators_nested", "generators_nested")]],
        "delegates": [[burn, frame("level3", "level3"), frame("level2", "level2"), frame("level1", "level1"),
                       frame("delegates", "delegates")]],
        "iterators": [[*walk, frame("iterators", "iterators")]],
        # PHP 7.4 runs the iterator before the generator, as its own backtraces show, and takes the value afterwards.
        "delegates_iterator": [[*walk, frame("from_iterator", "from_iterator"),
                                frame("delegates_iterator", "delegates_iterator")]] if version >= "8" else
        [[*how, frame("delegates_iterator", "delegates_iterator")]
         for how in (walk, [frame("from_iterator", "from_iterator")])],
        "magic": [magic("__get", "magic_get", "use_get"), magic("__call", "magic_call", "use_call"),
                  magic("__callStatic", "magic_static", "use_static"), magic("__invoke", "magic_invoke", "use_invoke"),
                  magic("__toString", "magic_string", "use_string"), magic("offsetGet", "magic_offset", "use_offset"),
                  magic("jsonSerialize", "magic_json", "use_json", internal("json_encode")),
                  magic("count", "magic_count", "use_count", internal("count")),
                  magic("count", "magic_count", "use_count")],
        "destructors": [[*dying, frame("destructors", "destructors")]],
        "destructors_leave": [[*dying, frame("destructors_leave", "destructors_leave")]],
        "exceptions": [[burn, frame("exceptions", "finally")], [burn, frame("exceptions", "catch")]],
        "unwinding": [[*dying, frame("unwinding", "unwinding")]],
        "evaluated": [[burn, ("{eval}", f"{work}({line('evaluated')[1]}) : eval()'d code", [1]),
                       frame("evaluated", "evaluated")]],
        "eval_function": [[burn, ("Work\\made", None, [1]), frame("eval_function", "eval_function")]],
        "includes": [[burn, place("{include:FILE}", "include_file"), frame("includes", "includes")]],
        "included_function": [[burn, frame("library", "library"), frame("included_function", "included_function")]],
        "anonymous": [[burn, frame("class@anonymous::work", "anonymous_work", prefix=""), frame("anonymous", "anonymous")]],
        "reflected": [[*area, internal("ReflectionMethod::invoke"), frame("reflected", "reflected")]],
        "buffered": [[burn, closure("buffered_start", "buffered_start"), internal("ob_get_clean"),
                      frame("buffered", "buffered")]],
        "variadics": [[leaf, frame("variadic", "variadic"), frame("variadics", "variadics")]
                      for leaf in (burn, internal("count"))],
        "long_loop": [[frame("long_loop", "long_first", "long_last")]],
        "fibers": [[*fiber, frame("fibers", "fibers")]],
        "fibers_nested": [[*fiber, frame("fiber_outer", "fiber_outer"), internal("Fiber::start"),
                           frame("fibers_nested", "fibers_nested")]],
        "fibers_resumed": [[burn, frame("fiber_waits", "fiber_waits"), internal("Fiber::resume"),
                            frame("fibers_resumed", "fibers_resumed")],
                           [internal("Fiber::suspend"), frame("fiber_waits", "fiber_suspends"), internal("Fiber::start"),
                            frame("fibers_resumed", "fibers_started")]],
        "enums": [[burn, frame("Suit::weigh", "weigh"), frame("enums", "enums")]],
        "first_class": [[burn, frame("Taker::take", "take"), internal("array_map"), frame("Taker::all", "take_all"),
                         frame("first_class", "first_class")]],
        "hooks": [[burn, frame("Hooked::$size::get", "hook"), frame("hooks", "hooks")]],
    }
    foot = [frame("slice", "slice"), place("{main}", "main")]
    return {name: [chain + foot for chain in some] for name, some in known.items()}


def fits(frame, want, anywhere):
    """Whether FRAME (name, file, line) is the function WANT, at one of WANT's lines or, with ANYWHERE, at any line."""
    name, file, lines = want
    return frame[0] == name and (file is None or frame[1] == file) and (anywhere or frame[2] in lines)


HELPERS = {*("Work\\" + name for name in ("throws", "thrower_with_local", "leave_local", "Binder::maker", "Walk::key", "Walk::next",
                                        "Walk::rewind", "Walk::valid")),
           *(name + "::__construct" for name in ("Exception", "RuntimeException", "Fiber", "ReflectionMethod")), "ob_start"}
# Functions that run between the chains.
AROUND = {"{main}", "Work\\slice", "hrtime"}
START = {"{main}", "define", "json_encode", "getmypid", "array_merge", "array_values", "flush", "var_dump", "opcache_reset"}


def without_helpers(php):
    """The frames PHP, leaf first, without helper functions that a chain calls on its way."""
    while php and php[0][0] in HELPERS:
        php = php[1:]
    return php


def judge(frames, known, compiled=False, natives=True):
    """The verdict on FRAMES, (type, name, file, line), leaf first: "whole"; "short", on the way to a chain's leaf or back,
    with the callers at their lines; "around", in the loop around the chains or before it; "unnamed"; or what is wrong.
    COMPILED: a leaf in compiled code may have no line. NATIVES: each native frame of the loop must have PHP frames."""
    if any(kind == "abort-marker" for kind, *_ in frames):
        return "cut: " + next(name for kind, name, *_ in frames if kind == "abort-marker")
    user = [f for f in frames if f[0] != "kernel"]
    php = [(name, file, line) for kind, name, file, line in user if kind == "php"]
    # A starting process is in the kernel first, then in the dynamic linker.
    if not php:
        return "no frames of PHP" if any(name == LOOP for _, name, *_ in user) else "around"
    if user[-1][1] not in ROOTS:
        return "no root: " + user[-1][1]
    names = [name for name, *_ in php]
    if UNNAMED in names:
        return "unnamed"
    if php[-1][0] != "{main}":
        return "without {main}: " + php[-1][0]
    if "Work\\slice" not in names:
        return "around" if all(name in START or name.startswith("{include:") for name in names) else "other: " + names[0]
    chain = names[names.index("Work\\slice") - 1].removeprefix("Work\\") if names[0] != "Work\\slice" else ""
    if chain not in known:
        return "around" if set(names) <= AROUND else "other: " + names[0]
    verdict, rest = "other frames", without_helpers(php)
    for want in known[chain]:
        if len(php) == len(want) and all(fits(f, w, compiled and i == 0 and f[2] == 0)
                                         for i, (f, w) in enumerate(zip(php, want))):
            verdict = "whole"
            break
        if len(rest) <= len(want) and all(fits(f, w, i == 0) for i, (f, w) in
                                          enumerate(zip(rest, want[len(want) - len(rest):]))):
            verdict = "short"
    if verdict == "other frames":
        return f"{chain}: " + " < ".join(f"{n}:{line}" for n, _, line in php[:8])
    if natives and not loops_have_frames(user):
        return f"{chain}: a native frame without PHP's"
    return verdict


def loops_have_frames(user):
    loops = [i for i, (kind, name, *_) in enumerate(user) if kind == "native" and name == LOOP]
    return all(user[i - 1][0] == "php" for i in loops[1:])


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
