# SPDX-License-Identifier: Apache-2.0
"""charts/kiln renders the same objects as kustomize/, obeys its values, and can be installed, upgraded and uninstalled."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[4]
sys.path.insert(0, str(ROOT / "tests/integration/lib"))
import envtest  # noqa: E402

CHART = ROOT / "charts/kiln"
NAMESPACE = "kiln-system"
PRODUCTION = ("-f", CHART / "values-production.yaml")
KEEP = "helm.sh/resource-policy"
LABEL = "app.kubernetes.io/part-of=kiln"
# kustomize sets a namespace on these cluster-scoped objects: it knows the scope of older kinds only.
CLUSTER_SCOPED = ("FlowSchema", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.fixture(scope="session")
def cluster():
    try:
        envtest.build()
    except RuntimeError as error:
        pytest.skip(str(error))
    with envtest.EnvTest() as running:
        yield running


@pytest.fixture(scope="session")
def helm(cluster, tmp_path_factory):
    """helm(argument, ...): runs Helm; its standard output, or with check=False the finished process."""
    done = subprocess.run([ROOT / "hack/helm", "build"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        pytest.skip(f"no Helm: {done.stderr[-300:]}")
    home = tmp_path_factory.mktemp("helm")
    env = cluster.env(HELM_CACHE_HOME=str(home), HELM_CONFIG_HOME=str(home), HELM_DATA_HOME=str(home))

    def run(*arguments, check=True):
        # Without a cluster Helm assumes the Kubernetes version that it was built for, which `go install` does not set.
        more = ["--kube-version", "1.30"] if arguments[0] in ("template", "lint") else []
        got = subprocess.run([done.stdout.strip(), *map(str, arguments), *more], capture_output=True, text=True, env=env)
        assert not check or got.returncode == 0, got.stderr
        return got.stdout if check else got

    return run


def objects(text):
    """{(kind, namespace, name): object} of a manifest, without the Namespace and without Helm's own annotation."""
    found = {}
    for o in filter(None, yaml.safe_load_all(text)):
        if o["kind"] == "Namespace":
            continue
        meta = o["metadata"]
        if o["kind"] in CLUSTER_SCOPED:
            meta.pop("namespace", None)
        if meta.get("annotations", {}).pop(KEEP, None) and not meta["annotations"]:
            del meta["annotations"]
        if meta["name"] == "kiln-first-config":
            o["data"] = {"cluster.yaml": yaml.safe_load(o["data"]["cluster.yaml"])}
        key = o["kind"], meta.get("namespace"), meta["name"]
        assert key not in found
        found[key] = o
    return found


def made(helm, *values, chart=CHART, namespace=NAMESPACE):
    return objects(helm("template", "kiln", chart, "-n", namespace, *values))


def container(made, role):
    return made["Deployment", NAMESPACE, f"kiln-{role}"]["spec"]["template"]["spec"]["containers"][0]


@pytest.fixture(scope="session")
def overlay(cluster, tmp_path_factory):
    """overlay(name, component, ...): the objects that kustomize builds from an overlay with components."""
    def build(name, *components):
        d = tmp_path_factory.mktemp(name)
        parts = [os.path.relpath(ROOT / "kustomize/components" / c, d.resolve()) for c in components]
        (d / "kustomization.yaml").write_text(json.dumps({
            "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "components": parts,
            "resources": [os.path.relpath(ROOT / "kustomize/overlays" / name, d.resolve())]}))
        return objects(cluster.kubectl("kustomize", d))

    return build


@pytest.mark.parametrize("name, components, values", [
    ("default", (), ()), ("production", (), PRODUCTION),
    ("production", ("monitoring", "tenant-secrets"),
     (*PRODUCTION, "--set", "monitoring.enabled=true,tenantSecrets.enabled=true")),
], ids=["default", "production", "everything"])
def test_it_makes_what_kustomize_makes(helm, overlay, name, components, values):
    want, got = overlay(name, *components), made(helm, *values)
    assert got.keys() == want.keys()
    for key in want:
        assert got[key] == want[key], key


def test_every_file_of_the_base_is_in_it():
    """The chart names every file of kustomize/base and crds/."""
    text = (CHART / "templates/objects.yaml").read_text()
    for folder, path in (("base", "kustomize/base"), ("crds", "crds")):
        for file in (ROOT / path).glob("*.yaml"):
            assert file.name in ("kustomization.yaml", "namespace.yaml") or f"{folder}/{file.name}" in text, file


def test_the_namespace_is_the_releases(helm):
    text = helm("template", "kiln", CHART, "-n", "profiling", *PRODUCTION, "--set", "monitoring.enabled=true")
    assert NAMESPACE not in text
    assert {namespace for _, namespace, _ in objects(text)} == {None, "profiling"}


def test_values_reach_both_roles_or_one(helm):
    got = made(helm, "--set", f"image.repository=r.example/op,image.digest={DIGEST},image.pullPolicy=Always,"
               "agentImage.repository=r.example/agent,agentImage.tag=v9,imagePullSecrets[0].name=registry,"
               "controller.replicas=1,stream.replicas=3,stream.logLevel=debug,stream.extraArgs[0]=--x,"
               "controller.tolerations[0].operator=Exists,stream.podAnnotations.a=b,stream.podLabels.team=x,"
               "controller.serviceAccountAnnotations.c=d,stream.resources.limits.memory=2Gi,config=null,crds.keep=false")
    controller, stream = container(got, "operator"), container(got, "stream")
    for c in (controller, stream):
        assert c["image"] == f"r.example/op@{DIGEST}" and c["imagePullPolicy"] == "Always"
    assert {"name": "KILN_AGENT_IMAGE", "value": "r.example/agent:v9"} in controller["env"]
    assert "args" not in controller and stream["args"] == ["--log-level", "debug", "--x"]
    assert controller["resources"]["limits"]["memory"] == "1Gi" and stream["resources"]["limits"]["memory"] == "2Gi"
    specs = [got["Deployment", NAMESPACE, f"kiln-{role}"]["spec"] for role in ("operator", "stream")]
    assert [s["replicas"] for s in specs] == [1, 3]
    assert [s["template"]["spec"].get("tolerations") for s in specs] == [[{"operator": "Exists"}], None]
    assert all(s["template"]["spec"]["imagePullSecrets"] == [{"name": "registry"}] for s in specs)
    meta = specs[1]["template"]["metadata"]
    assert meta["annotations"]["a"] == "b" and meta["annotations"]["prometheus.io/port"] == "8080"
    assert meta["labels"].items() >= {"team": "x", **specs[1]["selector"]["matchLabels"]}.items()
    assert got["ServiceAccount", NAMESPACE, "kiln-operator"]["metadata"]["annotations"] == {"c": "d"}
    assert "annotations" not in got["ServiceAccount", NAMESPACE, "kiln-stream"]["metadata"]
    assert ("ConfigMap", NAMESPACE, "kiln-first-config") not in got
    assert KEEP not in helm("template", "kiln", CHART, "--set", "crds.keep=false")
    assert not any("CustomResource" in kind or "Admission" in kind
                   for kind, _, _ in made(helm, "--set", "crds.install=false"))


@pytest.mark.parametrize("value, word", [
    ("controller.replica=3", "replica"), ("image.digest=sha256:1", "digest"), ("monitoring=true", "monitoring"),
    ("stream.logLevel=loud", "logLevel")])
def test_a_value_that_is_none_is_refused(helm, value, word):
    said = helm("template", "kiln", CHART, "--set", value, check=False)
    assert said.returncode and word in said.stderr


def test_a_package_has_all_of_it(helm, tmp_path):
    assert "1 chart(s) linted, 0 chart(s) failed" in helm("lint", "--strict", CHART)
    helm("package", CHART, "-d", tmp_path)
    package, = tmp_path.glob("*.tgz")
    with tarfile.open(package) as tar:
        assert all(m.isfile() or m.isdir() for m in tar.getmembers())
    everything = (*PRODUCTION, "--set", "monitoring.enabled=true,tenantSecrets.enabled=true")
    assert made(helm, *everything, chart=package) == made(helm, *everything)


def test_the_recipes_name_what_is_there(cluster):
    """The recipes for Argo CD and Flux, checked without either: the YAML is valid and its paths exist in this repository. The
    folders that Flux fetches have no symbolic links."""
    text = (ROOT / "docs/helm.md").read_text()
    found = [o for block in re.findall(r"^```yaml\n(.*?)^```$", text, re.M | re.S) for o in yaml.safe_load_all(block)]
    assert {o["kind"] for o in found} == {"Application", "ClusterProfilingConfig", "GitRepository", "Kustomization"}
    for o in found:
        for source in o["spec"].get("sources", []):
            assert source["repoURL"].endswith("/cluster") or (ROOT / source["path"] / "Chart.yaml").is_file()
    base, config = (o for o in found if o["kind"] == "Kustomization")
    assert config["spec"]["dependsOn"] == [{"name": base["metadata"]["name"]}] and base["spec"]["wait"]
    kinds = [o["kind"] for o in yaml.safe_load_all(cluster.kubectl("kustomize", ROOT / base["spec"]["path"]))]
    assert "CustomResourceDefinition" in kinds and "ConfigMap" not in kinds
    for folder in ("kustomize", "crds"):
        assert not [p for p in (ROOT / folder).rglob("*") if p.is_symlink()]


def left(cluster):
    """The names of all objects, of any kind, with Kiln's label."""
    kinds = cluster.kubectl("api-resources", "--verbs=list,delete", "-o", "name").split()
    listed = cluster.kubectl("get", ",".join(kinds), "-A", "-l", LABEL, "-o", "name", "--ignore-not-found")
    return set(listed.split())


def test_install_upgrade_roll_back_uninstall(cluster, helm):
    cluster.kubectl("create", "namespace", NAMESPACE)
    said = helm("install", "kiln", CHART, "-n", NAMESPACE, check=False)
    command = next(line for line in said.stderr.splitlines() if "kubectl label" in line).split()
    assert said.returncode
    cluster.kubectl(*command[1:])
    assert "kubectl get profilingnodes" in helm("install", "kiln", CHART, "-n", NAMESPACE)

    def replicas():
        return cluster.get("deployment", "kiln-stream", "-n", NAMESPACE)["spec"]["replicas"]

    assert replicas() == 2
    helm("upgrade", "kiln", CHART, "-n", NAMESPACE, *PRODUCTION, "--set", "stream.replicas=5")
    assert replicas() == 5 and "priorityclass.scheduling.k8s.io/kiln-agent" in left(cluster)
    cluster.apply("apiVersion: profiling.kiln.dev/v1alpha1\nkind: ProfilingConfig\n"
                  "metadata: {name: mine, namespace: default}\nspec: {profile: {mode: Disabled}}")
    helm("rollback", "kiln", "1", "-n", NAMESPACE)
    assert replicas() == 2 and "priorityclass.scheduling.k8s.io/kiln-agent" not in left(cluster)
    helm("uninstall", "kiln", "-n", NAMESPACE)
    kept = {f"customresourcedefinition.apiextensions.k8s.io/{kind}.profiling.kiln.dev"
            for kind in ("clusterprofilingconfigs", "profilingconfigs", "profilingnodes")}
    assert left(cluster) == kept | {f"namespace/{NAMESPACE}"}
    assert cluster.get("pcfg", "mine", "-n", "default")
    # The next release of the same name adopts the objects that were kept.
    helm("install", "kiln", CHART, "-n", NAMESPACE)
