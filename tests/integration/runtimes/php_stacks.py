# SPDX-License-Identifier: Apache-2.0
"""What the stacks of php_work.php must be, and whether a sample's is."""
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
    """The root directory with this version, fetched when it is missing, and None; or None and why it cannot be had."""
    script = os.path.join(HERE, "..", "..", "..", "hack", "lib", "php.sh")
    done = subprocess.run([script, version], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode == 77:
        return None, done.stderr.strip()
    if done.returncode:
        raise RuntimeError(f"{script}: {done.stderr[-500:]}")
    return done.stdout.strip(), None


def options(version, opcache=False, jit=None):
    """What makes a PHP of this VERSION have opcache, and compile (JIT: tracing, function)."""
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
    """php_work.php under PHP VERSION in the directory ROOT."""

    def __init__(self, version, root, *arguments, php=(), iterations=4000):
        self.work = Work(root)
        self.process = subprocess.Popen(
            ["chroot", root, f"/usr/bin/php{version}", "-n", *php, self.work.script(), str(iterations), *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            preexec_fn=lambda: os.nice(10))  # the agent has to get to its work
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
    """{chain: [frames]}, leaf first, of the work that lies in the directory WHERE: (function, file, lines). A chain may be
    one of several."""
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
        # It is compiled by PCRE, and has nothing that says where its caller is.
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
                              # They are made before they run.
                              [frame("numbers", "numbers"), frame("generators_nested", "generators_nested")],
                              [frame("first_of", "first_of"), frame("generators_nested", "generators_nested")]],
        "delegates": [[burn, frame("level3", "level3"), frame("level2", "level2"), frame("level1", "level1"),
                       frame("delegates", "delegates")]],
        "iterators": [[*walk, frame("iterators", "iterators")]],
        # 7.4 runs the iterator before the generator, as its own backtraces say, and takes the value from it then.
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
    """Is FRAME (name, file, line) the function WANT, at one of its lines or (ANYWHERE) at any?"""
    name, file, lines = want
    return frame[0] == name and (file is None or frame[1] == file) and (anywhere or frame[2] in lines)


HELPERS = {*("Work\\" + name for name in ("throws", "thrower_with_local", "leave_local", "Binder::maker", "Walk::key", "Walk::next",
                                        "Walk::rewind", "Walk::valid")),
           *(name + "::__construct" for name in ("Exception", "RuntimeException", "Fiber", "ReflectionMethod")), "ob_start"}
# What runs between the chains.
AROUND = {"{main}", "Work\\slice", "hrtime"}
START = {"{main}", "define", "json_encode", "getmypid", "array_merge", "array_values", "flush", "var_dump", "opcache_reset"}


def without_helpers(php):
    """PHP, leaf first, without functions that a chain's call on the way."""
    while php and php[0][0] in HELPERS:
        php = php[1:]
    return php


def judge(frames, known, compiled=False, natives=True):
    """Of FRAMES, (type, name, file, line) leaf first: "whole", "short" (on the way to a chain's leaf or back: the callers
    are at their lines), "around" (the loop around the chains, and what comes before it), "unnamed" or what is wrong. COMPILED: a leaf
    in compiled code has no line. NATIVES: each native frame of the loop has PHP's frames of its own."""
    if any(kind == "abort-marker" for kind, *_ in frames):
        return "cut: " + next(name for kind, name, *_ in frames if kind == "abort-marker")
    user = [f for f in frames if f[0] != "kernel"]
    php = [(name, file, line) for kind, name, file, line in user if kind == "php"]
    # A process that starts is in the kernel first, then in the dynamic linker.
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
