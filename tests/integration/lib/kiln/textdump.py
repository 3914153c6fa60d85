# SPDX-License-Identifier: Apache-2.0
"""Reads the dump of the text exporter: the layout of OpenTelemetry's distribution, plus "  Values: [N]" in a sample."""
import re
from dataclasses import dataclass, field

ATTRIBUTE = re.compile(r"  ([^:]+): (.*) \((Str|Int|Bool|Slice|Double|Map|Bytes|Empty)\)$")
VALUES = re.compile(r"  Values: \[(\d+(?:[ ,]+\d+)*)\]$")
FRAME = re.compile(r"Instrumentation: ([a-z0-9_-]+), Function: (.*)$")
FILE = re.compile(r", File: ([^,]*)(?:, Line: (\d+))?(?:, Column: \d+)?$")
RULER = re.compile(r"-+(?: ([A-Z][A-Za-z ]+) )?-+$")


@dataclass
class Sample:
    resource: dict
    attributes: dict = field(default_factory=dict)
    frames: list = field(default_factory=list)  # (type, name), leaf first
    places: list = field(default_factory=list)  # (file, line) of each frame; ("", 0) when unknown
    value: int = 1
    type: str = ""  # the sample type of its profile: "samples", or what else the value counts

    @property
    def pid(self):
        return self.attributes.get("process.pid")

    @property
    def tid(self):
        return self.attributes.get("thread.id")

    @property
    def exe(self):
        return self.attributes.get("process.executable.name")

    @property
    def comm(self):
        return self.attributes.get("thread.name")

    @property
    def user(self):
        return [name for kind, name in self.frames if kind != "kernel"]

    @property
    def kernel(self):
        return [name for kind, name in self.frames if kind == "kernel"]

    def kernel_is_on_top(self):
        kinds = [kind == "kernel" for kind, _ in self.frames]
        return kinds == sorted(kinds, reverse=True)


class BadDump(Exception):
    pass


def attribute(text, kind):
    if kind == "Int":
        return int(text)
    if kind == "Bool":
        return text == "true"
    return text


def parse(lines):
    """All samples of a dump; log lines between its parts are ignored. Raises BadDump when the dump is broken."""
    samples, resource, sample, inside, in_frames, kind = [], {}, None, None, False, ""
    for number, line in enumerate(lines, 1):
        line = line.rstrip("\n")
        ruler = RULER.fullmatch(line) if line.startswith("---") else None
        if ruler:
            title = ruler.group(1)
            if title == "New Resource Profile":
                resource, inside = {}, "resource"
            elif title == "New Profile":
                inside = "profile"
            elif title == "New Sample":
                if sample:
                    raise BadDump(f"line {number}: a sample inside of a sample")
                sample, inside, in_frames = Sample(resource, type=kind), "sample", False
            elif title == "End Sample":
                if not sample:
                    raise BadDump(f"line {number}: the end of no sample")
                samples.append(sample)
                sample, inside = None, "profile"
            elif title is None and sample:
                in_frames = True
            elif title in ("End Profile", "End Resource Profile"):
                inside = None
            continue
        if inside == "resource":
            match = ATTRIBUTE.fullmatch(line)
            if match:
                resource[match.group(1)] = attribute(match.group(2), match.group(3))
        elif inside == "profile" and line.startswith("  SampleType: "):
            kind = line.removeprefix("  SampleType: ")
        elif inside == "sample" and not in_frames:
            match = ATTRIBUTE.fullmatch(line)
            values = VALUES.fullmatch(line)
            if match:
                sample.attributes[match.group(1)] = attribute(match.group(2), match.group(3))
            elif values:
                sample.value = sum(map(int, re.split(r"[ ,]+", values.group(1))))
            elif line:
                raise BadDump(f"line {number}: neither attribute nor value: {line!r}")
        elif inside == "sample":
            match = FRAME.fullmatch(line)
            values = VALUES.fullmatch(line)
            if match:
                sample.frames.append((match.group(1), FILE.sub("", match.group(2))))
                place = FILE.search(match.group(2))
                sample.places.append((place.group(1), int(place.group(2) or 0)) if place else ("", 0))
            elif values:
                sample.value = sum(map(int, re.split(r"[ ,]+", values.group(1))))
            elif line:
                raise BadDump(f"line {number}: no frame: {line!r}")
    if sample:
        raise BadDump("the dump ends inside of a sample")
    return samples


def before_attaching(runtime):
    """The frames that end the stacks of a runtime's first samples: before the process, its unwind tables and the runtime's
    structures are read, and before its walker is loaded."""
    return {"[incomplete: no unwind table]", "[incomplete: process not known]", f"[{runtime}: not read yet]",
            f"[{runtime}: walker not loaded]"}
