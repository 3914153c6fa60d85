# SPDX-License-Identifier: Apache-2.0
"""The call chains that a workload is written to have, and whether a stack is one of them.

A workload prints {"pid", "name", "chains": [{"frames": [...], ...}]}; frames go from the leaf to the
root, user space only. An element is

  "name"              this function, by this very name
  "libc:A=B|C"        this function of the C library, by any of its symbols' names (A and B are names of one
                      function, C is another one); where no symbol covers it (the library is stripped),
                      SONAME+0xOFFSET
  "lib:SO,SO2"        any function of these libraries, named or SONAME+0xOFFSET
  "/regex/"           any name that the expression matches as a whole
  "cxx:NAME"          a demangled C++ name, blanks ignored
  "rust:NAME"         a demangled Rust name, hashes and generic arguments of the last part ignored
  "plt"               a slot of the program's own PLT
  "vdso"              a function of the vDSO
  "*" alone           any frames at all
  {"n": N, "of": []}  these elements N times over

with "?", "*" or "+" in front: at most one, any number, at least one. Other keys of a chain: "tid", "exe"
(only samples of that thread or program), "min_share" / "max_share" (of the workload's samples) and
"min_kernel_share" (of the chain's samples: so many were taken in the kernel).
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
    """Hashes and generic arguments go: v0 writes them, the legacy mangling does not."""
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
    """The source's name of a part or copy that the compiler made of a function; agents show either."""
    return re.sub(r"(\.(part|isra|constprop|cold|localalias|lto_priv)(\.\d+)?)+$", "", name)


class Names:
    """What the elements' prefixes mean for one program."""

    def __init__(self, program, executable=None, symbols=None, debug_dir="/usr/lib/debug"):
        """PROGRAM: as the agent names it; SYMBOLS: an unstripped twin to resolve PROGRAM+0xOFFSET;
        DEBUG_DIR: where the agent finds separate debug files by build id, None: nowhere, "either":
        it may look or not (the process has another root)."""
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
        # The agent names the file, which may have a longer version: libstdc++.so.6.0.30.
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
            # An impl's own parameter reads T in the legacy mangling and as the type in v0.
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
        """States reachable without a frame: an element that may be absent can be passed."""
        out = set(states)
        for state in sorted(states):
            while state < len(self.elements) and self.elements[state][1] == 0:
                state += 1
                out.add(state)
        return out

    def match(self, frames):
        """(whole, how many frames fit, what was expected next)"""
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
    """What became of a workload's samples."""

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
    """SAMPLES: objects with value, tid, exe, user (names, leaf first), kernel (names)."""
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
    """What is wrong with how often each chain was seen; empty when nothing is."""
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
