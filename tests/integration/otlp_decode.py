# SPDX-License-Identifier: Apache-2.0
"""Reads OTLP profiles with the opentelemetry-proto package: a decoder that Kiln had no part in.

decode(path or bytes) gives one dict a sample:

    resource    {key: value}
    scope       (name, version)
    type, unit  "samples", "count"
    period      (type, unit, number) or None
    start, duration   nanoseconds
    value       sum of values, or the number of timestamps where there are no values
    timestamps  [unix ns]
    attributes  {key: value}
    frames      leaf first; one dict a function: name, system_name, file, line, start_line, type,
                address, inlined, mapping {start, limit, offset, file, build_ids {kind: id}}

The input is one ExportProfilesServiceRequest, or what a Collector's file exporter wrote with
`format: proto` (messages with a 4-byte big-endian length before each), or with `format: json` (a
message a line). Needs opentelemetry-proto >= 1.40 (wire generation G6: Sample.values is field 4).

As a program: otlp_decode.py FILE... prints a summary; exit code 1 when an encoder rule is broken.
"""

import os
import struct
import sys

from google.protobuf import json_format
from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2
from opentelemetry.proto.profiles.v1development import profiles_pb2

if profiles_pb2.Sample.DESCRIPTOR.fields_by_name["values"].number != 4:
    raise ImportError("this opentelemetry-proto is older than wire generation G6")

Request = profiles_service_pb2.ExportProfilesServiceRequest


def messages(data):
    """The requests in DATA (bytes), however they are framed."""
    if data[:1] == b"{":
        return [json_format.Parse(line, Request()) for line in data.splitlines() if line.strip()]
    found, at = [], 0
    while at + 4 <= len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        if at + 4 + length > len(data):
            break
        found.append((at + 4, length))
        at += 4 + length
    if found and at == len(data):
        return [Request.FromString(data[a : a + n]) for a, n in found]
    return [Request.FromString(data)]


def value_of(v, text=()):
    """TEXT: the string table, for what a Collector moved there when it passed a resource on."""
    kind = v.WhichOneof("value")
    if kind == "array_value":
        return [value_of(item, text) for item in v.array_value.values]
    if kind == "string_value_strindex":
        return text[v.string_value_strindex]
    return getattr(v, kind) if kind else None


def check(request):
    """The encoder rules that a decoder can see, as a list of complaints."""
    d, bad = request.dictionary, []
    for table in ("mapping", "location", "function", "link", "attribute", "stack"):
        entries = getattr(d, table + "_table")
        if not entries or entries[0].ByteSize():
            bad.append(f"{table}_table[0] is not the empty message")
    if not d.string_table or d.string_table[0]:
        bad.append("string_table[0] is not empty")
    if len(set(d.string_table)) != len(d.string_table):
        bad.append("string_table has duplicates")
    for r in request.resource_profiles:
        if len(r.resource.attributes) > 30:
            bad.append("more than 30 resource attributes")
        if any(not a.key or a.key_strindex for a in r.resource.attributes):
            bad.append("a resource attribute has no plain key")
        for s in r.scope_profiles:
            for p in s.profiles:
                if not p.samples:
                    bad.append("a profile is empty")
                if any(len(x.values) + bool(x.timestamps_unix_nano) != 1 for x in p.samples):
                    bad.append("a sample has neither one value nor timestamps alone")
    if not request.resource_profiles:
        bad.append("no resource profiles")
    return bad


def _attributes(d, indices):
    table = [d.attribute_table[i] for i in indices]
    return {d.string_table[a.key_strindex]: value_of(a.value) for a in table}


def _mapping(d, index):
    if not index:
        return None
    m = d.mapping_table[index]
    prefix = "process.executable.build_id."
    ids = {k[len(prefix) :]: v for k, v in _attributes(d, m.attribute_indices).items()}
    return {
        "start": m.memory_start,
        "limit": m.memory_limit,
        "offset": m.file_offset,
        "file": d.string_table[m.filename_strindex],
        "build_ids": ids,
    }


def _frames(d, stack):
    frames = []
    for index in d.stack_table[stack].location_indices:
        loc = d.location_table[index]
        kind = _attributes(d, loc.attribute_indices).get("profile.frame.type")
        mapping = _mapping(d, loc.mapping_index)
        for i, line in enumerate(loc.lines):
            f = d.function_table[line.function_index]
            frames.append(
                {
                    "name": d.string_table[f.name_strindex],
                    "system_name": d.string_table[f.system_name_strindex],
                    "file": d.string_table[f.filename_strindex],
                    "line": line.line,
                    "start_line": f.start_line,
                    "type": kind,
                    "address": loc.address,
                    "inlined": i + 1 < len(loc.lines),
                    "mapping": mapping,
                }
            )
    return frames


def _samples(request):
    d = request.dictionary
    text = d.string_table
    stacks = {}
    for r in request.resource_profiles:
        resource = {
            a.key or text[a.key_strindex]: value_of(a.value, text) for a in r.resource.attributes
        }
        for scope in r.scope_profiles:
            for p in scope.profiles:
                period = None
                if p.period:
                    t = p.period_type
                    period = (text[t.type_strindex], text[t.unit_strindex], p.period)
                for s in p.samples:
                    if s.stack_index not in stacks:
                        stacks[s.stack_index] = _frames(d, s.stack_index)
                    yield {
                        "resource": resource,
                        "scope": (scope.scope.name, scope.scope.version),
                        "type": text[p.sample_type.type_strindex],
                        "unit": text[p.sample_type.unit_strindex],
                        "period": period,
                        "start": p.time_unix_nano,
                        "duration": p.duration_nano,
                        "value": sum(s.values) if s.values else len(s.timestamps_unix_nano),
                        "timestamps": list(s.timestamps_unix_nano),
                        "attributes": _attributes(d, s.attribute_indices),
                        "frames": stacks[s.stack_index],
                    }


def decode(source):
    """SOURCE: a path or bytes. See the module's text."""
    if not isinstance(source, (bytes, bytearray)):
        with open(os.fspath(source), "rb") as f:
            source = f.read()
    return [sample for request in messages(bytes(source)) for sample in _samples(request)]


def main(paths):
    complaints = 0
    for path in paths:
        with open(path, "rb") as f:
            data = f.read()
        for complaint in [c for request in messages(data) for c in check(request)]:
            print(f"{path}: {complaint}")
            complaints += 1
        samples = decode(data)
        events = sum(s["value"] for s in samples if s["type"] == "samples")
        names = {f["name"] for s in samples for f in s["frames"]}
        print(f"{path}: {len(samples)} samples, {events} CPU events, {len(names)} functions")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
