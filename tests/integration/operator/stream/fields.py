# SPDX-License-Identifier: Apache-2.0
"""The effect of each field of both configs: a change of the field, and where it shows on its way to a node: in objects for
the kubelet, in the agent's configuration, in the node stream, or in a condition that the field has no effect.
test_fields.py requires a row for every field of the CRDs.

A row has a field, the config before (base), a change that is merged into it, and check(world), which is false before the
change, true after it, and false again once it is undone. World is in test_fields.py."""

TEXT = {"name": "logs", "text": {}}
RUNTIMES = ("jvm", "python", "v8", "ruby", "php", "perl", "dotnet", "beam", "luajit")


def otlp(name="main", endpoint="main.example:4317", **more):
    return {"name": name, "otlp": {"endpoint": endpoint, **more}}


def exporter(w, name="main"):
    """The exporter NAME in the agent's configuration; {} when there is none."""
    return next((e or {} for key, e in w.config()["exporters"].items() if key.split("/")[1] == name), {})


def ineffective(w, text, kind="cpc", name="cluster"):
    status = w.condition(kind, name, "Effective") or ("", "", "")
    return status[0] == "False" and text in status[2]


def attribute(w, key):
    return w.pod("till")["attributes"].get(key)


# ---- the profile, in both configs -------------------------------------------------------------------


def profile(at, kind, name):
    """(field, base, change, check) of each field below AT ("defaults", "profile")."""
    def rows():
        yield "mode", {}, {"mode": "OptIn"}, lambda w: not w.policy("till")["enabled"]
        yield "sampling.hz", {}, {"sampling": {"hz": 31}}, lambda w: w.policy("till")["hz"] == 31
        yield ("offCPU.mode", {}, {"offCPU": {"mode": "Enabled"}},
               lambda w: w.policy("till")["off_cpu_per_mille"] == 20)
        yield ("offCPU.perMille", {"offCPU": {"mode": "Enabled"}}, {"offCPU": {"mode": "Enabled", "perMille": 30}},
               lambda w: w.policy("till")["off_cpu_per_mille"] == 30)
        yield "labels.allow[]", {}, {"labels": {"allow": ["tenant"]}}, lambda w: w.policy("till")["labels"] == ["tenant"]
        yield "timestamps", {}, {"timestamps": "Enabled"}, lambda w: w.policy("till")["timestamps"]
        for tracer in ("native", "go"):
            yield (f"tracers.{tracer}", {}, {"tracers": {tracer: "Disabled"}},
                   lambda w, t=tracer: ineffective(w, f"spec.{at}.tracers.{t}: cannot be disabled", kind, name))
        for tracer in RUNTIMES:
            yield (f"tracers.{tracer}", {}, {"tracers": {tracer: "Disabled"}},
                   lambda w, t=tracer: t in w.policy("till")["disabled_tracers"])

    for field, base, change, check in rows():
        yield f"spec.{at}.{field}", {at: base}, {at: change}, check


# ---- the agent, of all nodes and of a group ---------------------------------------------------------

TAINT = {"key": "gpu", "operator": "Equal", "value": "a", "effect": "NoExecute", "tolerationSeconds": 60}


def agent(group=None):
    """Rows of spec.agent, or of the agent of node group GROUP: (field below agent, base, change, check)."""
    name = f"kiln-agent-{group}" if group else "kiln-agent"

    def template(w):
        return w.daemonset(name)["spec"]["template"]

    def spec(w):
        return template(w)["spec"]

    def container(w):
        return spec(w)["containers"][0]

    def toleration(key, value):
        return lambda w: spec(w)["tolerations"][0].get(key) == value

    def quantity(kind, what, value):
        return lambda w: container(w)["resources"].get(kind, {}).get(what) == value

    yield "image", {}, {"image": "kiln-agent:other"}, lambda w: container(w)["image"] == "kiln-agent:other"
    yield ("imagePullPolicy", {}, {"imagePullPolicy": "Always"},
           lambda w: container(w).get("imagePullPolicy") == "Always")
    yield ("imagePullSecrets[].name", {}, {"imagePullSecrets": [{"name": "pull"}]},
           lambda w: spec(w).get("imagePullSecrets") == [{"name": "pull"}])
    yield ("securityMode", {}, {"securityMode": "Privileged"},
           lambda w: container(w)["securityContext"].get("privileged") is True)
    base = {"tolerations": [TAINT]}
    yield ("tolerations[].key", base, {"tolerations": [{**TAINT, "key": "tpu"}]}, toleration("key", "tpu"))
    yield ("tolerations[].operator", {"tolerations": [{"key": "x", "operator": "Equal"}]},
           {"tolerations": [{"operator": "Exists"}]}, toleration("operator", "Exists"))
    yield ("tolerations[].value", base, {"tolerations": [{**TAINT, "value": "b"}]}, toleration("value", "b"))
    yield ("tolerations[].effect", {"tolerations": [{"key": "x", "effect": "NoExecute"}]},
           {"tolerations": [{"effect": "NoSchedule"}]}, toleration("effect", "NoSchedule"))
    yield ("tolerations[].tolerationSeconds", base, {"tolerations": [{**TAINT, "tolerationSeconds": 61}]},
           toleration("tolerationSeconds", 61))
    for kind, what, value in (("requests", "cpu", "77m"), ("requests", "memory", "200Mi"), ("limits", "cpu", "700m"),
                              ("limits", "memory", "300Mi")):
        yield (f"resources.{kind}.{what}", {}, {"resources": {kind: {what: value}}}, quantity(kind, what, value))
    yield ("priorityClassName", {}, {"priorityClassName": "system-node-critical"},
           lambda w: spec(w).get("priorityClassName") == "system-node-critical")
    yield ("updateStrategy.maxUnavailable", {}, {"updateStrategy": {"maxUnavailable": "7%"}},
           lambda w: w.daemonset(name)["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] == "7%")
    yield ("logLevel", {}, {"logLevel": "Warn"}, lambda w: w.config(name)["service"].get("telemetry") == {
        "logs": {"level": "Warn"}})
    yield ("whenUnknown", {}, {"whenUnknown": "Default"}, lambda w: w.config(name)["processors"]["k8sattributes"][
        "operator"].get("when_unknown") == "default")
    yield ("reportIntervalSeconds", {}, {"reportIntervalSeconds": 17},
           lambda w: w.config(name)["receivers"]["profiling"]["reporter_interval"] == "17s")
    yield ("podLabels{}", {}, {"podLabels": {"team": "x"}},
           lambda w: template(w)["metadata"]["labels"].get("team") == "x")
    yield ("podAnnotations{}", {}, {"podAnnotations": {"team": "x"}},
           lambda w: template(w)["metadata"]["annotations"].get("team") == "x")


def of_agent():
    for field, base, change, check in agent():
        yield f"spec.agent.{field}", {"agent": base}, {"agent": change}, check
    yield ("spec.agent.nodeSelector{}", {}, {"agent": {"nodeSelector": {"disk": "fast"}}},
           lambda w: w.daemonset()["spec"]["template"]["spec"]["nodeSelector"].get("disk") == "fast")
    yield ("spec.agent.metricsService", {}, {"agent": {"metricsService": "Disabled"}},
           lambda w: not w.object("service", "kiln-agent-metrics"))
    yield ("spec.agent.networkPolicy", {}, {"agent": {"networkPolicy": "Disabled"}},
           lambda w: not w.object("networkpolicy", "kiln-agent"))


def of_groups():
    group = {"name": "g", "nodeSelector": {"matchLabels": {"pool": "g"}}}

    def groups(**more):
        return {"nodeGroups": [{**group, **more}]}

    yield "spec.nodeGroups[].name", groups(), groups(name="h"), lambda w: w.daemonset("kiln-agent-h")
    yield ("spec.nodeGroups[].nodeSelector.matchLabels{}", groups(),
           groups(nodeSelector={"matchLabels": {"pool": "h"}}),
           lambda w: "'h'" in str(w.daemonset("kiln-agent-g")["spec"]["template"]["spec"]["affinity"]))
    yield ("spec.nodeGroups[].sampling.hz", groups(), groups(sampling={"hz": 31}),
           lambda w: w.policy("till")["hz"] == 31)
    for field, base, change, check in agent("g"):
        yield f"spec.nodeGroups[].agent.{field}", groups(agent=base), groups(agent=change), check
    yield ("spec.nodeGroups[].agent.metricsService", groups(), groups(agent={"metricsService": "Disabled"}),
           lambda w: "profiling.kiln.dev/metrics" not in w.daemonset("kiln-agent-g")["spec"]["template"]["metadata"][
               "labels"])
    yield ("spec.nodeGroups[].agent.networkPolicy", groups(), groups(agent={"networkPolicy": "Disabled"}),
           lambda w: "'g'" in str(w.object("networkpolicy", "kiln-agent")["spec"].get("podSelector")))


# ---- destinations of the cluster --------------------------------------------------------------------


def of_destinations():
    def main(**more):
        return {"destinations": [otlp(**more)]}

    def secrets(w, part="volumes"):
        spec = w.daemonset()["spec"]["template"]["spec"]
        return str(spec[part] if part == "volumes" else spec["containers"][0]["env"])

    at = "spec.destinations[]."
    yield at + "name", main(), {"destinations": [otlp("other")]}, lambda w: exporter(w, "other")
    yield (at + "text", main(), {"destinations": [otlp(), {"name": "extra", "text": {}}]},
           lambda w: "customprofilesexporter/extra" in w.config()["exporters"])
    at += "otlp."
    yield (at + "endpoint", main(), main(endpoint="other.example:4317"),
           lambda w: exporter(w).get("endpoint") == "other.example:4317")
    yield (at + "protocol", main(endpoint="https://x.example:1"), main(endpoint="https://x.example:1", protocol="HTTP"),
           lambda w: "otlp_http/main" in w.config()["exporters"])
    yield at + "compression", main(), main(compression="Zstd"), lambda w: exporter(w).get("compression") == "zstd"
    yield at + "timeoutSeconds", main(), main(timeoutSeconds=9), lambda w: exporter(w).get("timeout") == "9s"
    yield (at + "protoGeneration", main(), main(protoGeneration="G5"),
           lambda w: exporter(w).get("proto_generation") == "g5")
    yield (at + "tls.mode", main(tls={"mode": "Verify"}), main(tls={"mode": "SkipVerify"}),
           lambda w: exporter(w).get("tls", {}).get("insecure_skip_verify") is True)
    yield (at + "tls.serverName", main(), main(tls={"serverName": "x.example"}),
           lambda w: exporter(w).get("tls", {}).get("server_name_override") == "x.example")

    def ca(**more):  # a CA is invalid together with a mode that verifies nothing
        return main(tls={"mode": "Verify", "caSecretRef": {"name": "one", "key": "k", **more}})

    yield at + "tls.caSecretRef.name", ca(), ca(name="two"), lambda w: "'two'" in secrets(w)
    yield at + "tls.caSecretRef.key", ca(), ca(key="other"), lambda w: "'other'" in secrets(w)
    yield (at + "tls.clientCertificateSecretRef.name", main(), main(tls={"clientCertificateSecretRef": {"name": "two"}}),
           lambda w: "'two'" in secrets(w))
    yield (at + "headers[].name", main(headers=[{"name": "a", "value": "1"}]), main(headers=[{"name": "b", "value": "1"}]),
           lambda w: {"name": "b", "value": "1"} in exporter(w).get("headers"))
    yield (at + "headers[].value", main(headers=[{"name": "a", "value": "1"}]), main(headers=[{"name": "a", "value": "2"}]),
           lambda w: {"name": "a", "value": "2"} in exporter(w).get("headers"))
    secret = {"name": "s", "secretRef": {"name": "one", "key": "k"}}
    yield (at + "headersFrom[].name", main(headersFrom=[secret]), main(headersFrom=[{**secret, "name": "t"}]),
           lambda w: "t" in [h["name"] for h in exporter(w)["headers"]])
    yield (at + "headersFrom[].secretRef.name", main(headersFrom=[secret]),
           main(headersFrom=[{**secret, "secretRef": {"name": "two", "key": "k"}}]),
           lambda w: "'two'" in secrets(w, "env"))
    yield (at + "headersFrom[].secretRef.key", main(headersFrom=[secret]),
           main(headersFrom=[{**secret, "secretRef": {"name": "one", "key": "other"}}]),
           lambda w: "'other'" in secrets(w, "env"))


def cluster_rows():
    """Rows of the ClusterProfilingConfig: (field, base, change, check)."""
    yield from profile("defaults", "cpc", "cluster")
    off_cpu = {"defaults": {"offCPU": {"mode": "Enabled", "perMille": 20}}}

    def threshold(w):
        return w.config()["receivers"]["profiling"].get("off_cpu_threshold")

    two = {"destinations": [TEXT, {"name": "more", "text": {}}]}
    yield ("spec.defaults.destinationRefs[]", two, {"defaults": {"destinationRefs": ["more"]}},
           lambda w: w.config()["service"]["pipelines"]["profiles"]["exporters"] == ["customprofilesexporter/more"])
    yield ("spec.metadata.clusterName", {}, {"metadata": {"clusterName": "orchard"}},
           lambda w: attribute(w, "k8s.cluster.name") == "orchard")
    yield ("spec.metadata.wellKnownLabels", {}, {"metadata": {"wellKnownLabels": "Enabled"}},
           lambda w: attribute(w, "service.name") == "counter")
    yield ("spec.metadata.otelAnnotations", {}, {"metadata": {"otelAnnotations": "Disabled"}},
           lambda w: attribute(w, "service.version") != "7")
    for field, key, name, value in (("podLabels", "team", "k8s.pod.label.team", "fruit"),
                                    ("podAnnotations", "note", "k8s.pod.annotation.note", "ripe"),
                                    ("namespaceLabels", "cost", "k8s.namespace.label.cost", "9"),
                                    ("namespaceAnnotations", "floor", "k8s.namespace.annotation.floor", "2")):
        yield (f"spec.metadata.{field}[]", {}, {"metadata": {field: [key]}},
               lambda w, n=name, v=value: attribute(w, n) == v)
    yield from of_destinations()

    def is_off(w):
        return not w.policy("till")["enabled"]

    at = "spec.guardrails.namespaceSelector."
    yield at + "matchLabels{}", {}, {"guardrails": {"namespaceSelector": {"matchLabels": {"cost": "8"}}}}, is_off
    row = {"key": "cost", "operator": "In", "values": ["9"]}

    def matches(**more):
        return {"guardrails": {"namespaceSelector": {"matchExpressions": [{**row, **more}]}}}

    yield at + "matchExpressions[].key", matches(), matches(key="price"), is_off
    yield at + "matchExpressions[].operator", matches(), matches(operator="NotIn"), is_off
    yield at + "matchExpressions[].values[]", matches(), matches(values=["8"]), is_off
    yield ("spec.guardrails.sampling.minHz", {}, {"guardrails": {"sampling": {"minHz": 50}}},
           lambda w: w.policy("till")["hz"] == 50)
    yield ("spec.guardrails.sampling.maxHz", {}, {"guardrails": {"sampling": {"maxHz": 10}}},
           lambda w: w.policy("till")["hz"] == 10)
    yield ("spec.guardrails.offCPU.mode", off_cpu, {"guardrails": {"offCPU": {"mode": "Forbidden"}}},
           lambda w: threshold(w) is None)
    yield ("spec.guardrails.offCPU.maxPerMille", off_cpu, {"guardrails": {"offCPU": {"maxPerMille": 5}}},
           lambda w: threshold(w) == 0.005)
    yield ("spec.guardrails.deniedTracers[]", {}, {"guardrails": {"deniedTracers": ["python"]}},
           lambda w: "python" not in w.config()["receivers"]["profiling"]["tracers"])
    yield ("spec.guardrails.allowedLabels[]", {"defaults": {"labels": {"allow": ["tenant", "route"]}}},
           {"guardrails": {"allowedLabels": ["route"]}}, lambda w: w.policy("till")["labels"] == ["route"])
    yield ("spec.guardrails.podOptOut", {}, {"guardrails": {"podOptOut": "Forbidden"}},
           lambda w: w.policy("shy")["enabled"])
    yield ("spec.budget.cpu", {}, {"budget": {"cpu": "0.5%"}}, lambda w: w.budget()["cpu"] == 5000)
    yield ("spec.budget.memory", {}, {"budget": {"memory": "64Mi"}}, lambda w: w.budget()["memory"] == 64 << 20)
    yield from of_agent()
    yield from of_groups()

    def probes(w):
        return w.config()["receivers"]["profiling"].get("probes")

    one = {"probe": "uprobe:/lib/libc.so.6:malloc"}
    yield ("spec.probes[].probe", {}, {"probes": [one]}, lambda w: probes(w) == [one["probe"] + ",rate=100"])
    yield ("spec.probes[].rate", {"probes": [one]}, {"probes": [{**one, "rate": 7}]},
           lambda w: probes(w) == [one["probe"] + ",rate=7"])


# ---- a namespace's config ---------------------------------------------------------------------------


def tenant_rows():
    """Rows of a ProfilingConfig "own" in the namespace of the pod "till", whose label is team=fruit: (field, spec of the
    cluster's config, base, change, check)."""
    for field, base, change, check in profile("profile", "pcfg", "own"):
        yield field, {}, base, change, check
    two = {"destinations": [TEXT, {"name": "more", "text": {}}]}
    yield ("spec.profile.destinationRefs[]", two, {"profile": {}}, {"profile": {"destinationRefs": ["more"]}},
           lambda w: w.policy("till")["destinations"] == ["more"])

    def is_fast(w):
        return w.policy("till")["hz"] == 41

    fast = {"profile": {"sampling": {"hz": 41}}}

    def pods(**more):
        return {**fast, "podSelector": {"matchExpressions": [{"key": "team", "operator": "In", "values": ["none"], **more}]}}

    yield ("spec.podSelector.matchLabels{}", {}, {**fast, "podSelector": {"matchLabels": {"team": "none"}}},
           {"podSelector": {"matchLabels": {"team": "fruit"}}}, is_fast)
    no_key = {**fast, "podSelector": {"matchExpressions": [{"key": "nothing", "operator": "Exists"}]}}
    yield ("spec.podSelector.matchExpressions[].key", {}, no_key,
           {"podSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]}}, is_fast)
    yield "spec.podSelector.matchExpressions[].operator", {}, pods(), pods(operator="NotIn"), is_fast
    yield "spec.podSelector.matchExpressions[].values[]", {}, pods(), pods(values=["fruit"]), is_fast
    yield ("spec.priority", {}, {**fast, "podSelector": {"matchLabels": {"team": "fruit"}}, "priority": 1},
           {"priority": 3}, is_fast)

    # The tenant's own destinations, with values of its Secrets. Secrets "one" and "two" have the keys k and other.
    may = {"guardrails": {"tenantDestinations": "SameNamespaceSecret"}}

    def mine(name="mine", **more):
        return {"profile": {"destinationRefs": [name]}, "destinations": [otlp(name, **{"endpoint": "m.example:4317", **more})]}

    def told(w, name="mine"):
        return next((d for key, d in w.destinations().items() if key.split("@")[0] == f"shop/{name}"), {})

    at = "spec.destinations[]."
    yield at + "name", may, mine(), mine("yours"), lambda w: told(w, "yours")
    at += "otlp."
    yield at + "endpoint", may, mine(), mine(endpoint="n.example:1"), lambda w: told(w).get("endpoint") == "n.example:1"
    http = {"endpoint": "https://x.example:1"}
    yield (at + "protocol", may, mine(**http), mine(**http, protocol="HTTP"), lambda w: told(w).get("kind") == 2)
    yield at + "compression", may, mine(), mine(compression="Zstd"), lambda w: told(w).get("compression") == "zstd"
    yield at + "timeoutSeconds", may, mine(), mine(timeoutSeconds=9), lambda w: told(w).get("timeout_ms") == 9000
    yield at + "protoGeneration", may, mine(), mine(protoGeneration="G5"), lambda w: told(w).get("proto_generation") == "g5"
    yield at + "tls.mode", may, mine(), mine(tls={"mode": "SkipVerify"}), lambda w: told(w).get("tls_mode") == 1
    yield (at + "tls.serverName", may, mine(), mine(tls={"serverName": "x.example"}),
           lambda w: told(w).get("server_name") == "x.example")
    ca = {"name": "one", "key": "k"}
    yield (at + "tls.caSecretRef.name", may, mine(tls={"caSecretRef": ca}), mine(tls={"caSecretRef": {**ca, "name": "two"}}),
           lambda w: told(w).get("ca_bytes") == w.sizes["two", "k"])
    yield (at + "tls.caSecretRef.key", may, mine(tls={"caSecretRef": ca}), mine(tls={"caSecretRef": {**ca, "key": "other"}}),
           lambda w: told(w).get("ca_bytes") == w.sizes["one", "other"])
    yield (at + "tls.clientCertificateSecretRef.name", may, mine(),
           mine(tls={"clientCertificateSecretRef": {"name": "pair"}}),
           lambda w: told(w).get("certificate_bytes") == w.sizes["pair", "tls.crt"])
    yield (at + "headers[].name", may, mine(headers=[{"name": "a", "value": "1"}]),
           mine(headers=[{"name": "b", "value": "1"}]), lambda w: told(w).get("headers") == {"b": "1"})
    yield (at + "headers[].value", may, mine(headers=[{"name": "a", "value": "1"}]),
           mine(headers=[{"name": "a", "value": "2"}]), lambda w: told(w).get("headers") == {"a": "2"})

    def header(name="a", secret="words", key="k"):
        return mine(headersFrom=[{"name": name, "secretRef": {"name": secret, "key": key}}])

    yield (at + "headersFrom[].name", may, header(), header(name="b"), lambda w: told(w).get("headers") == {"b": "words-k"})
    yield (at + "headersFrom[].secretRef.name", may, header(), header(secret="others"),
           lambda w: told(w).get("headers") == {"a": "others-k"})
    yield (at + "headersFrom[].secretRef.key", may, header(), header(key="l"),
           lambda w: told(w).get("headers") == {"a": "words-l"})


def rail_rows():
    """Rows of guard-rails that affect tenants' configs only: (field, spec of the tenant's config, base, change, check)."""
    refs = {"profile": {"destinationRefs": ["more"]}}
    two = {"destinations": [TEXT, {"name": "more", "text": {}}]}
    yield ("spec.guardrails.allowedDestinations[]", refs, two, {"guardrails": {"allowedDestinations": ["logs"]}},
           lambda w: w.policy("till")["destinations"] != ["more"])
    own = {"profile": {"destinationRefs": ["mine"]}, "destinations": [otlp("mine", "m.example:4317")]}

    def sends(w):
        return any(d.startswith("shop/mine@") for d in w.policy("till")["destinations"])

    yield ("spec.guardrails.tenantDestinations", own, {}, {"guardrails": {"tenantDestinations": "SameNamespaceSecret"}},
           sends)
    yield ("spec.guardrails.tenantEndpoints[]", own, {"guardrails": {"tenantDestinations": "SameNamespaceSecret"}},
           {"guardrails": {"tenantEndpoints": ["other.example"]}}, lambda w: not sends(w))
