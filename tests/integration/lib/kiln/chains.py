# SPDX-License-Identifier: Apache-2.0
"""The expected call chains of a workload, and whether a stack matches one of them.

A workload prints {"pid", "name", "chains": [{"frames": [...], ...}]}; frames go from the leaf to the
root, user space only. An element is

  "name"              a function of exactly this name
  "libc:A=B|C"        one of these functions of the C library, by any name of its symbol (A and B are names of the
                      same function, C is another function), or SONAME+0xOFFSET when no symbol covers it (the
                      library is stripped)
  "lib:SO,SO2"        any function of these libraries, named or SONAME+0xOFFSET
  "/regex/"           any name that the expression matches as a whole
  "cxx:NAME"          a demangled C++ name, blanks ignored
  "rust:NAME"         a demangled Rust name, hashes and generic arguments of the last part ignored
  "plt"               a slot of the program's own PLT
  "vdso"              a function of the vDSO
  "*" alone           any number of any frames
  {"n": N, "of": []}  the elements of the list, N times

A prefix "?", "*" or "+" means at most one, any number, or at least one. Other keys of a chain: "tid", "exe" (the chain
is for samples of that thread or program only), "min_share" / "max_share" (bounds of its share of the workload's samples)
and "min_kernel_share" (lower bound of the share of the chain's samples that were taken in the kernel).
"""
import re

from . import elfsym

LIBC = "/lib/x86_64-linux-gnu/libc.so.6"
LIBRARIES = {
    "libc.so.6": LIBC,
    "libm.so.6": "/lib/x86_64-linux-gnu/libm.so.6",
    "ld-linux-x86-64.so.2": "/lib64/ld-linux-x86-64.so.2",
    "libgcc_s.so.1": "/lib/x86_64-linux-gnu/libgcc_s.so.1",
    "libstdc++.so.6": "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
}
OFFSET = r"\+0x[0-9a-f]+"


def normal_rust(name):
    """NAME without hashes and generic arguments: v0 mangling has them, legacy mangling does not."""
    name = re.sub(r"::h[0-9a-f]{16}$", "", name)
    name = re.sub(r"\[[0-9a-f]+\]", "", name)
    name = re.sub(r"\{closure#\d+\}", "{{closure}}", name)
    out, depth, i = [], 0, 0
    while i < len(name):
        if name.startswith("::<", i) and not depth:
            depth, i = 1, i + 3
            while i < len(name) and depth:
                depth += {"<": 1, ">": -1}.get(name[i], 0) if name[i - 1] != "-" else 0
                i += 1
            continue
        out.append(name[i])
        i += 1
    return "".join(out).replace(" ", "")


def without_clone(name):
    """NAME without the suffixes of compiler-made parts and clones (.part, .cold, ...); stacks may show either name."""
    return re.sub(r"(\.(part|isra|constprop|cold|localalias|lto_priv)(\.\d+)?)+$", "", name)


class Names:
    """Turns the elements of chains into predicates on frame names, for one program."""

    def __init__(self, program, executable=None, symbols=None, debug_dir="/usr/lib/debug"):
        """PROGRAM: its name in stacks. SYMBOLS: an unstripped copy, to resolve PROGRAM+0xOFFSET. DEBUG_DIR: where the agent
        finds debug files by build id; None: it has none; "either": both are right (the process has another root)."""
        self.program = program
        self.debug_dir = debug_dir
        self.own = elfsym.load(executable) if executable else None
        self.twin = elfsym.load(symbols) if symbols else None
        self.static = bool(self.own and self.own.by_name.get("__libc_start_call_main"))
        self.cache = {}

    def libc(self, names):
        if self.debug_dir == "either":
            some = [Names(self.program, debug_dir=d).libc(names) for d in ("/usr/lib/debug", None)]
            return lambda frame: any(predicate(frame) for predicate in some)
        elf = self.own if self.static else elfsym.load(LIBC, self.debug_dir)
        wanted, stripped = set(), False
        for name in names.split("|"):
            same = name.split("=")
            wanted |= set().union(*map(elf.aliases, same))
            wanted |= set(map(without_clone, wanted))
            stripped |= not any(map(elf.sized, same))
        so = self.program if self.static else "libc.so.6"
        pattern = re.compile(re.escape(so) + OFFSET) if stripped else None
        return lambda frame: frame in wanted or bool(pattern and pattern.fullmatch(frame))

    def libraries(self, sos):
        wanted = set()
        for so in sos:
            wanted |= elfsym.load(LIBRARIES[so], self.debug_dir).names()
        if self.static and self.own:
            wanted |= self.own.names()
        wanted |= set(map(without_clone, wanted))
        # The agent shows the file's name, which may have a longer version than the soname: libstdc++.so.6.0.30.
        pattern = re.compile("(?:" + "|".join(map(re.escape, sos)) + r")(?:\.[0-9]+)*" + OFFSET)
        cxx = re.compile(r"(std::|__cxxabiv1::|__gnu_cxx::|\(anonymous namespace\)|(read_|get_cie|base_from|size_of_enc|execute_|uw_|unwind).*|operator (new|delete)).*")
        demangles = "libstdc++.so.6" in sos
        return lambda frame: (frame in wanted or bool(pattern.fullmatch(frame))
                              or (demangles and bool(cxx.fullmatch(frame))))

    def predicate(self, text):
        if text not in self.cache:
            self.cache[text] = self._predicate(text)
        return self.cache[text]

    def _predicate(self, text):
        if text.startswith("/") and text.endswith("/") and len(text) > 1:
            pattern = re.compile(text[1:-1])
            return lambda frame: bool(pattern.fullmatch(frame))
        if text.startswith("libc:"):
            return self.libc(text[5:])
        if text.startswith("lib:"):
            return self.libraries(text[4:].split(","))
        if text.startswith("cxx:"):
            wanted = text[4:].replace(" ", "")
            return lambda frame: frame.replace(" ", "") == wanted
        if text.startswith("rust:"):
            wanted = normal_rust(text[5:])
            # The type parameter of an impl is shown as T in legacy mangling, but as the actual type in v0.
            pattern = re.compile(re.escape(wanted).replace(r"<T>", r"<(?:T|u32)>"))
            return lambda frame: bool(pattern.fullmatch(normal_rust(frame)))
        if text == "plt":
            pattern = re.compile(re.escape(self.program) + OFFSET + r"|.*@plt")
            return lambda frame: bool(pattern.fullmatch(frame))
        if text == "vdso":
            pattern = re.compile(r"(?:__vdso_)?(?:clock_gettime|getcpu|time|gettimeofday)|\[vdso\]" + OFFSET)
            return lambda frame: bool(pattern.fullmatch(frame))
        if self.twin:
            pattern = re.compile(re.escape(self.program) + OFFSET)

            def resolved(frame):
                if frame == text:
                    return True
                if not pattern.fullmatch(frame):
                    return False
                offset = int(frame.rsplit("+0x", 1)[1], 16)
                return text in self.twin.at(offset) | self.twin.at(offset - 1)
            return resolved
        return lambda frame: frame == text


class Chain:
    def __init__(self, description, names):
        self.tid = description.get("tid")
        self.exe = description.get("exe")
        self.min_share = description.get("min_share", 0.0)
        self.max_share = description.get("max_share", 1.0)
        self.min_kernel_share = description.get("min_kernel_share", 0.0)
        self.text = []
        self.elements = []  # (predicate, at least, at most or None)
        self._add(description["frames"], names)

    def _add(self, frames, names):
        for frame in frames:
            if isinstance(frame, dict):
                for _ in range(frame["n"]):
                    self._add(frame["of"], names)
                continue
            self.text.append(frame)
            if frame == "*":
                self.elements.append((lambda name: True, 0, None))
                continue
            low, high = {"?": (0, 1), "*": (0, None), "+": (1, None)}.get(frame[0], (1, 1))
            self.elements.append((names.predicate(frame[1:] if (low, high) != (1, 1) else frame), low, high))

    def _skip(self, states):
        """STATES and those that are reachable without a frame: optional elements can be skipped."""
        out = set(states)
        for state in sorted(states):
            while state < len(self.elements) and self.elements[state][1] == 0:
                state += 1
                out.add(state)
        return out

    def match(self, frames):
        """(does the whole chain match, how many frames match, what was expected next)"""
        states = self._skip({0})
        for i, frame in enumerate(frames):
            after = set()
            for state in states:
                if state == len(self.elements) or not self.elements[state][0](frame):
                    continue
                after.add(state + 1)
                if self.elements[state][2] is None:
                    after.add(state)
            if not after:
                return False, i, self._expected(states)
            states = self._skip(after)
        return len(self.elements) in states, len(frames), self._expected(states)

    def _expected(self, states):
        return " or ".join(self.text[s] if s < len(self.text) else "the end" for s in sorted(states))


class Verdict:
    """How many of a workload's samples match one of its chains, and which do not."""

    def __init__(self):
        self.samples = 0
        self.right = 0
        self.wrong = []  # (value, frames, why)
        self.by_chain = {}
        self.kernel_by_chain = {}

    @property
    def wrong_samples(self):
        return sum(value for value, _, _ in self.wrong)

    @property
    def complete(self):
        return self.right / self.samples if self.samples else 0.0


def check(samples, chains):
    """The Verdict on SAMPLES: objects with value, tid, exe, user (names, leaf first), kernel (names)."""
    verdict = Verdict()
    memo = {}
    for sample in samples:
        verdict.samples += sample.value
        key = (tuple(sample.user), sample.tid, sample.exe)
        if key not in memo:
            memo[key] = _find(sample, chains)
        chain, why = memo[key]
        if chain is None:
            verdict.wrong.append((sample.value, sample.user, why))
            continue
        verdict.right += sample.value
        verdict.by_chain[chain] = verdict.by_chain.get(chain, 0) + sample.value
        if sample.kernel:
            verdict.kernel_by_chain[chain] = verdict.kernel_by_chain.get(chain, 0) + sample.value
    return verdict


def _find(sample, chains):
    best = (-1, "no chain is expected of this thread or program")
    for i, chain in enumerate(chains):
        if chain.tid is not None and chain.tid != sample.tid:
            continue
        if chain.exe is not None and chain.exe != sample.exe:
            continue
        whole, fits, expected = chain.match(sample.user)
        if whole:
            return i, ""
        if fits > best[0]:
            got = sample.user[fits] if fits < len(sample.user) else "the end"
            best = (fits, f"frame {fits}: want {expected}, got {got}")
    return None, best[1]


def shares(verdict, chains):
    """Messages about chains whose share of the samples is out of its bounds; empty when all are within."""
    out = []
    for i, chain in enumerate(chains):
        share = verdict.by_chain.get(i, 0) / max(verdict.samples, 1)
        label = ";".join(chain.text[:3])
        if share < chain.min_share:
            out.append(f"{label}...: {share:.1%} of the samples, want at least {chain.min_share:.1%}")
        if share > chain.max_share:
            out.append(f"{label}...: {share:.1%} of the samples, want at most {chain.max_share:.1%}")
        kernel = verdict.kernel_by_chain.get(i, 0) / max(verdict.by_chain.get(i, 0), 1)
        if kernel < chain.min_kernel_share:
            out.append(f"{label}...: {kernel:.1%} in the kernel, want at least {chain.min_kernel_share:.0%}")
    return out
