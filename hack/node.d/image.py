#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A container image without Docker and without a registry: one OCI tar of programs that are on this machine
and of what they need to run: the shared libraries that the dynamic linker finds for them, its plugins, users,
CA certificates, /tmp. The tree is laid out as Debian's images are (/lib is a link to /usr/lib), so that a file
is where the image of deploy/*.Dockerfile has it. The same input gives the same bytes.

usage: image.py --name REF --output FILE [--entrypoint PATH] [--user UID:GID] [--port N]... SOURCE=TARGET...

REF is the full name that the runtime knows it by (docker.io/library/NAME:TAG for a plain NAME:TAG).
SOURCE=TARGET is a file that goes to TARGET, or a directory whose files go below TARGET as they are, without the
libraries that they need; "->LINK=TARGET" a symbolic link to LINK.
`ctr -n k8s.io images import FILE` takes the result."""
import argparse
import hashlib
import io
import json
import os
import platform
import re
import stat
import subprocess
import sys
import tarfile

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")  # links into /usr
DIRECTORIES = {"etc": 0o755, "proc": 0o755, "sys": 0o755, "dev": 0o755, "run": 0o755, "root": 0o700,
               "tmp": 0o1777, "var/tmp": 0o1777, "var/lib": 0o755, "usr/local/bin": 0o755}
FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n"
                  "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
                  "nonroot:x:65532:65532:nonroot:/nonexistent:/usr/sbin/nologin\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\nnonroot:x:65532:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "etc/os-release": 'ID=debian\nNAME="Kiln test image"\n',
}
CA_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
# {library: the plugin that it opens by name at run time}: ldd does not list plugins.
PLUGINS = {"libwebsockets.so": "libwebsockets-evlib_uv.so"}


def fail(text):
    sys.exit(f"image.py: {text}")


def libraries(program, with_plugins=True):
    """Shared libraries of PROGRAM: {path by which it asks for them: real file}; empty for a static program or no program."""
    done = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
    if "not found" in done.stdout:
        fail(f"{program}: " + "; ".join(line.strip() for line in done.stdout.splitlines() if "not found" in line))
    found = {path: os.path.realpath(path) for path in re.findall(r"(?:=> |^\s+)(/\S+) \(0x", done.stdout, re.M)}
    for path in list(found) if with_plugins else []:
        for library, plugin in PLUGINS.items():
            file = os.path.join(os.path.dirname(path), plugin)
            if os.path.basename(path).startswith(library) and os.path.exists(file):
                found[file] = os.path.realpath(file)
                found.update(libraries(file, with_plugins=False))
    return found


class Layer:
    """The image's only layer: an uncompressed tar, with each directory before the entries in it."""

    def __init__(self):
        self.entries = {}  # path without the first slash -> (TarInfo, bytes or None)

    @staticmethod
    def place(path):
        path = os.path.normpath("/" + path).lstrip("/")
        return "usr/" + path if path.split("/")[0] in MERGED else path

    def _put(self, path, kind, mode, data=None, link=""):
        info = tarfile.TarInfo(path)
        info.type, info.mode, info.linkname, info.size = kind, mode, link, len(data) if data is not None else 0
        parent = os.path.dirname(path)
        if parent and parent not in self.entries:
            self._put(parent, tarfile.DIRTYPE, 0o755)
        self.entries[path] = (info, data)

    def directory(self, path, mode=0o755):
        self._put(self.place(path), tarfile.DIRTYPE, mode)

    def link(self, path, to):
        # Without place(), which would put the links of MERGED themselves below usr/.
        self._put(path.lstrip("/"), tarfile.SYMTYPE, 0o777, link=to)

    def file(self, path, data, mode=0o644):
        self._put(self.place(path), tarfile.REGTYPE, mode, data)

    def copy(self, source, path):
        with open(source, "rb") as f:
            executable = os.fstat(f.fileno()).st_mode & stat.S_IXUSR
            self.file(path, f.read(), 0o755 if executable else 0o644)

    def tar(self):
        return tar((info, data) for info, data in self.entries.values())


def tar(members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as t:
        for info, data in members:
            t.addfile(info, io.BytesIO(data) if data is not None else None)
    return out.getvalue()


def build_layer(files):
    layer = Layer()
    for path, mode in DIRECTORIES.items():
        layer.directory(path, mode)
    for name in MERGED:
        layer.directory(f"usr/{name}")
        layer.link(name, f"usr/{name}")
    for path, text in FILES.items():
        layer.file(path, text.encode())
    if os.path.exists(CA_BUNDLE):
        layer.copy(CA_BUNDLE, CA_BUNDLE)
    for given in files:
        source, _, target = given.rpartition("=")
        if not source or not target.startswith("/"):
            fail(f"{given}: want SOURCE=/TARGET")
        if source.startswith("->"):
            layer.link(layer.place(target), source[2:])
            continue
        if os.path.isdir(source):
            for directory, _, names in sorted(os.walk(source)):
                for name in sorted(names):
                    path = os.path.join(directory, name)
                    layer.copy(path, os.path.join(target, os.path.relpath(path, source)))
            continue
        layer.copy(source, target)
        for path, file in sorted(libraries(source).items()):
            layer.copy(file, path)
    return layer.tar()


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def descriptor(kind, data, **more):
    return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": digest(data), "size": len(data), **more}


def to_json(value):
    return json.dumps(value, sort_keys=True).encode()


def build_image(options):
    """The layout of the OCI image specification 1.0: blobs by digest, and an index that names the manifest."""
    layer = build_layer(options.files)
    settings = {"Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]}
    if options.entrypoint:
        settings["Entrypoint"] = [options.entrypoint]
    if options.user:
        settings["User"] = options.user
    if options.port:
        settings["ExposedPorts"] = {f"{port}/tcp": {} for port in options.port}
    architecture = ARCHITECTURES.get(platform.machine()) or fail(f"no image for {platform.machine()}")
    config = to_json({"architecture": architecture, "os": "linux", "config": settings,
                      "created": "1970-01-01T00:00:00Z",
                      "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
                      "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "hack/node.d/image.py"}]})
    manifest = to_json({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                        "config": descriptor("config.v1+json", config),
                        "layers": [descriptor("layer.v1.tar", layer)]})
    names = {"io.containerd.image.name": options.name, "org.opencontainers.image.ref.name": options.name}
    index = to_json({"schemaVersion": 2, "manifests": [descriptor(
        "manifest.v1+json", manifest, annotations=names,
        platform={"architecture": architecture, "os": "linux"})]})
    members = {"oci-layout": to_json({"imageLayoutVersion": "1.0.0"}), "index.json": index}
    for blob in (layer, config, manifest):
        members["blobs/sha256/" + digest(blob)[7:]] = blob
    infos = []
    for path, data in members.items():
        info = tarfile.TarInfo(path)
        info.size = len(data)
        infos.append((info, data))
    return tar(infos)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n")[0])
    parser.add_argument("--name", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--entrypoint")
    parser.add_argument("--user")
    parser.add_argument("--port", type=int, action="append", default=[])
    parser.add_argument("files", nargs="+")
    options = parser.parse_args()
    if "/" not in options.name or ":" not in options.name:
        fail(f"{options.name}: want REGISTRY/NAME:TAG; NAME:TAG of a manifest is docker.io/library/NAME:TAG")
    data = build_image(options)
    with open(options.output + ".part", "wb") as f:
        f.write(data)
    os.rename(options.output + ".part", options.output)
    print(f"{options.output}: {options.name}, {len(data) >> 20} MiB")


main()
