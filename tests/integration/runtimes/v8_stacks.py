# SPDX-License-Identifier: Apache-2.0
"""The call chains of v8_work.js, and the check of samples against them."""
import os
import re

HERE = os.path.dirname(os.path.realpath(__file__))
WORK = os.path.join(HERE, "v8_work.js")
MODULE = os.path.join(HERE, "v8_module.mjs")
ROOTS = {"_start", "clone", "clone3", "__clone", "start_thread"}


def marks(path):
    """{mark: line} of the "AT x" comments."""
    with open(path, encoding="utf-8") as f:
        return {m.group(1): i for i, line in enumerate(f, 1) if (m := re.search(r"// AT (\w+)$", line))}


def chains():
    """{chain: [(function, file, lines)]}, leaf first, without slice and its callers on the root side."""
    at, module = marks(WORK), marks(MODULE)

    def frame(name, *lines, file=WORK, upto=None):
        lines = [(module if file == MODULE else at)[m] for m in lines]
        return name, file, range(lines[0], at[upto] + 1) if upto else lines

    burn = frame("burn", "burn_first", upto="burn_last")
    out = {
        "recursion": [burn, frame("recurse", "recurse_leaf")] + [frame("recurse", "recurse_call")] * 12 +
                     [frame("recursion", "recursion")],
        "closures": [burn, frame("adder", "adder"), frame("closures", "closures")],
        "classes": [burn, frame("Shape.area", "shape_area"), frame("Circle.area", "circle_area"),
                    frame("Shape.unit", "unit"), frame("classes", "classes")],
        "parents": [burn, frame("Shape", "constructor"), frame("Circle", "circle"), frame("Shape.unit", "unit"),
                    frame("classes", "classes")],
        "later": [burn, frame("later", "later")],
        "construct": [burn, frame("Shape", "constructor"), frame("construct", "construct")],
        "generators": [burn, frame("innerNumbers", "inner_numbers"), frame("numbers", "numbers"),
                       frame("generators", "generators")],
        "callbacks": [burn, frame("mapped", "mapped"), frame("callbacks", "callbacks")],
        "sorts": [burn, frame("(anonymous)", "comparator"), frame("sorts", "sorts")],
        "reduces": [burn, frame("(anonymous)", "nested"), frame("folded", "folded"), frame("reduces", "reduces")],
        "deopts": [burn, frame("poly", "poly"), frame("deopts", "deopts_a", "deopts_b")],
        "deopts_new": [burn, frame("poly", "poly"), ("(anonymous)", "", [3]), frame("deopts", "deopts_new")],
        "inlining": [frame("third", "third_first", upto="third_last"), frame("second", "second"),
                     frame("first", "first"), frame("inlining", "inlining")],
        "loops": [frame("spin", "spin_first", upto="spin_last"), frame("loops", "loops_once", "loops_twice")],
        "longLoop": [frame("longLoop", "long_first", upto="long_last")],
        "jsonLeaf": [frame("jsonLeaf", "json_loop", upto="json")],
        "regexpLeaf": [frame("regexpLeaf", "regexp_loop", upto="regexp")],
        "modules": [burn, frame("helper", "helper", file=MODULE), frame("moduleWork", "module_work", file=MODULE),
                    frame("modules", "modules")],
    }
    return out


# Frames of V8 itself above or between those of a chain: built-in functions, the C++ code that they call, the C library.
STUBS = {"(regular expression)", "(code)"}  # "(code)" before V8 11, whose frames do not tell their kind
NEAR = 6  # how far the lines of a short function may be from the marked ones


def leaf_is_exact(frames, known):
    """Whether the leaf of FRAMES, for which judge() returned "whole", is at a marked line, not just in its function."""
    _, name, file, line = next(f for f in frames if f[0] == "v8js" and f[1] not in STUBS)
    return any(fits((name, file, line), want[0], False) for want in known.values())


def caller_line(frames, name):
    """The line of the caller, if the leaf of FRAMES is the function NAME."""
    script = [f for f in frames if f[0] == "v8js" and f[1] not in STUBS]
    return script[1][3] if len(script) > 1 and script[0][1] == name else 0


def fits(frame, want, anywhere):
    """Whether FRAME (name, file, line) is the function WANT, at one of WANT's lines or, with ANYWHERE, at any line."""
    name, file, lines = want
    if frame[0] != name and not name.endswith("." + frame[0]) or frame[1] != file:
        return False
    return frame[2] in lines or anywhere and min(lines) - NEAR <= frame[2] <= max(lines) + NEAR


def judge(frames, known):
    """The verdict on FRAMES, (type, name, file, line), leaf first: "whole"; "short", on the way to a chain's leaf; "other", in
    no chain (V8's own threads, the loop around the chains); or what is wrong. Callers must be at their exact lines, the leaf
    in its function."""
    if any(kind == "abort-marker" for kind, *_ in frames):
        return "cut: " + next(name for kind, name, *_ in frames if kind == "abort-marker")
    user = [f for f in frames if f[0] != "kernel"]
    if not user or user[-1][1] not in ROOTS and not re.search(r"\+0x[0-9a-f]+$", user[-1][1]):
        return "no root: " + (user[-1][1] if user else "no frames")
    if any(name == "(code)" for _, name, *_ in user) and not any("RegExp" in name for _, name, *_ in user):
        return "code that is no function's"
    script = [(name, file, line) for kind, name, file, line in user if kind == "v8js" and name not in STUBS]
    names = [name for name, *_ in script]
    if "later" in names:
        rest = script[:names.index("later") + 1]
    elif "slice" in names:
        rest = script[:names.index("slice")]
        if not rest or rest[-1][0] not in known:
            return "other"
    else:
        return "other"
    for want in known.values():
        if want[-1][0] != rest[-1][0]:
            continue
        tail = want[len(want) - len(rest):] if len(rest) <= len(want) else None
        if tail and all(fits(f, w, i == 0) for i, (f, w) in enumerate(zip(rest, tail))):
            return "whole" if len(rest) == len(want) else "short"
    return f"other frames: {' < '.join(f'{n}:{line}' for n, _, line in rest[:8])}"
