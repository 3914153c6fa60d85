# SPDX-License-Identifier: Apache-2.0
"""Off-CPU time and labels are a namespace's own choice: in one namespace a ProfilingConfig asks for the waits and allows one
label, another namespace has no config. Both run the same program, which publishes a trace, a span and three labels."""
import time

import pytest

from cluster import ROOT, SCRIPT, run, wait_for

SOURCE = ROOT / "tests/integration/labels"
ON, OFF = "kitchen", "cellar"
ARGUMENTS = {"waits": ["waiting", "2"], "works": ["steady", "1"]}  # by container
SECRETS = ("hunter2", "/pay/", "http.route")  # what the program also publishes


def image(cluster):
    program = f"{cluster.dir}/labelled"
    run("gcc", "-O2", "-D_GNU_SOURCE", "-fno-optimize-sibling-calls", "-I", ROOT, "-o", program, SOURCE / "program.c",
        SOURCE / "context.c", "-Wl,--export-dynamic-symbol=otel_thread_ctx_v1", "-pthread")
    run(ROOT / "hack/node.d/image.py", "--name", "kiln.local/labelled:1", "--output", cluster.dir + "/labelled.tar",
        "--entrypoint", "/usr/local/bin/labelled", "--user", "65532:65532", program + "=/usr/local/bin/labelled")
    run(SCRIPT, "import", cluster.node_dir, cluster.dir + "/labelled.tar")


@pytest.fixture(scope="module")
def containers(cluster):
    """{(namespace, name): id} of the containers."""
    image(cluster)
    # The program ends with its input.
    found = cluster.work_pods((ON, OFF), [
        {"name": name, "image": "kiln.local/labelled:1", "args": arguments, "stdin": True, "resources": {"requests": {"cpu": "200m"}}}
        for name, arguments in ARGUMENTS.items()])
    cluster.report_every(1)
    yield found
    for namespace in (ON, OFF):
        cluster.kubectl("delete", "namespace", namespace, "--wait=false")
    cluster.report_every(5)


def waits(cluster, container):
    """The samples of off-CPU time."""
    return [s for s in cluster.samples(container) if s.type.startswith("off_cpu")]


def tenant_of(sample):
    """The tenant that the function of SAMPLE works for, or None."""
    return next((f[-1] for f in sample.user if f in ("work_A", "work_B")), None)


def test_waits_and_labels_of_one_namespace_only(cluster, containers):
    for place in ((ON, "works"), (OFF, "works")):
        wait_for("samples with a trace", lambda c=containers[place]: any("trace_id" in s.attributes for s in cluster.samples(c)))
    assert not any(waits(cluster, c) for c in containers.values())
    assert not any("tenant" in s.attributes for c in containers.values() for s in cluster.samples(c))

    cluster.apply({"apiVersion": "profiling.kiln.dev/v1alpha1", "kind": "ProfilingConfig",
                   "metadata": {"name": "requests", "namespace": ON},
                   "spec": {"profile": {"offCPU": {"mode": "Enabled"}, "labels": {"allow": ["tenant"]}}}})
    begin = time.monotonic()
    wait_for("waits with labels", lambda: sum("tenant" in s.attributes for s in waits(cluster, containers[ON, "waits"])) > 20)
    cluster.took("offCPU Enabled, labels allowed: in the log", begin)
    slept = [s for s in waits(cluster, containers[ON, "waits"]) if tenant_of(s) and "tenant" in s.attributes]
    causes = {s.attributes["off_cpu.cause"] for s in slept}
    assert "sleep" in causes and causes <= {"sleep", "run queue"}
    assert {s.attributes["tenant"] for s in slept} == {"A", "B"} and all(s.attributes["tenant"] == tenant_of(s) for s in slept)
    wait_for("samples of CPU time with labels", lambda: any(
        "tenant" in s.attributes for s in cluster.samples(containers[ON, "works"]) if not s.type.startswith("off_cpu")))

    # The other namespace has no waits, and of its labels the trace and the span only.
    assert not waits(cluster, containers[OFF, "waits"]) and not waits(cluster, containers[OFF, "works"])
    others = cluster.samples(containers[OFF, "works"])
    assert any("span_id" in s.attributes for s in others) and not any("tenant" in s.attributes for s in others)
    log = cluster.log()
    assert not [secret for secret in SECRETS if secret in log]

    cluster.kubectl("delete", "profilingconfig", "-n", ON, "requests")
    begin = time.monotonic()
    last = {"waits": -1, "at": begin}

    def is_over():
        """Whether the container has had no sample of a wait for four windows."""
        now = len(waits(cluster, containers[ON, "waits"]))
        if now != last["waits"]:
            last.update({"waits": now, "at": time.monotonic()})
        return time.monotonic() > last["at"] + 5

    wait_for("no more waits", is_over)
    cluster.times.append(("offCPU's config deleted: the last wait in the log", last["at"] - begin))
    count = len(cluster.samples(containers[ON, "works"]))
    wait_for("samples of CPU time go on", lambda: len(cluster.samples(containers[ON, "works"])) > count + 5)
