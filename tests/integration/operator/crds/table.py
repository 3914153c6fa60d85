# SPDX-License-Identifier: Apache-2.0
"""Custom resources and the API server's complete answer to each, since users read that text.

A row is (title, kind, spec, errors). Without errors the object is created, and must be returned as it was sent: no field
pruned, no default added. Errors are the API server's texts after `is invalid: `, in any order, since the server's order
varies; for an unknown field it is the whole message. A fifth element replaces the object's usual name. Errors that only
the operator can find, because they depend on other objects, are in table_operator.py.
"""

CLUSTER, TENANT, NODE = "ClusterProfilingConfig", "ProfilingConfig", "ProfilingNode"


def otlp(endpoint="otel:4317", name="main", **more):
    return {"name": name, "otlp": {"endpoint": endpoint, **more}}


def to(*args, **more):
    """The spec of a cluster config with one destination."""
    return {"destinations": [otlp(*args, **more)]}


def hz(value):
    return {"profile": {"sampling": {"hz": value}}}


def agent(**more):
    return {"agent": more}


def groups(*label_counts):
    return {"nodeGroups": [{"name": f"g{i}", "nodeSelector": {"matchLabels": {f"l{j}": "x" for j in range(n)}}}
                           for i, n in enumerate(label_counts)]}


def select(*expressions, **labels):
    return {"podSelector": {**({"matchLabels": labels} if labels else {}),
                            **({"matchExpressions": list(expressions)} if expressions else {})}}


FULL_PROFILE = {
    "mode": "OptIn", "sampling": {"hz": 97}, "offCPU": {"mode": "Enabled", "perMille": 10},
    "tracers": {"native": "Enabled", "go": "Auto", "jvm": "Auto", "python": "Disabled", "v8": "Auto",
                "ruby": "Disabled", "php": "Auto", "perl": "Disabled", "dotnet": "Enabled", "beam": "Auto",
                "luajit": "Auto"},
    "destinationRefs": ["main"],
}
FULL_AGENT = {
    "image": "registry.example.com:5000/kiln/agent:v0.1.0@sha256:" + "0" * 64, "imagePullPolicy": "IfNotPresent",
    "imagePullSecrets": [{"name": "pull"}], "securityMode": "Capabilities",
    "tolerations": [{"operator": "Exists"}, {"key": "gpu", "value": "yes", "effect": "NoSchedule"},
                    {"key": "spot", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}],
    "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"cpu": 1, "memory": "512Mi"}},
    "priorityClassName": "system-node-critical", "updateStrategy": {"maxUnavailable": "10%"}, "logLevel": "Debug",
    "reportIntervalSeconds": 10, "podLabels": {"team": "platform"}, "podAnnotations": {"note": "x" * 4096},
    "metricsService": "Enabled", "networkPolicy": "Disabled",
}
FULL_OTLP = {
    "endpoint": "https://otel.example.com:4318/base", "protocol": "HTTP", "compression": "Zstd", "timeoutSeconds": 600,
    "protoGeneration": "G5",
    "tls": {"mode": "Verify", "serverName": "otel.internal", "caSecretRef": {"name": "ca", "key": "ca.crt"},
            "clientCertificateSecretRef": {"name": "client"}},
    "headers": [{"name": "X-Scope-OrgID", "value": "kiln dev"}, {"name": "x-empty", "value": ""}],
    "headersFrom": [{"name": "authorization", "secretRef": {"name": "token", "key": "bearer"}}],
}
FULL_CLUSTER = {
    "defaults": FULL_PROFILE,
    "metadata": {"clusterName": "arn:aws:eks:eu-west-1:111122223333:cluster/prod", "wellKnownLabels": "Enabled", "otelAnnotations": "Disabled",
                 "podLabels": ["team", "app.kubernetes.io/version"], "podAnnotations": ["example.com/owner"],
                 "namespaceLabels": ["env"], "namespaceAnnotations": ["cost-centre"]},
    "destinations": [{"name": "main", "otlp": FULL_OTLP}, {"name": "stdout", "text": {}}],
    "guardrails": {"namespaceSelector": {"matchLabels": {"kiln": "yes"}, "matchExpressions": [
                       {"key": "env", "operator": "In", "values": ["dev", "prod"]},
                       {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]},
                       {"key": "team", "operator": "Exists"}, {"key": "secret", "operator": "DoesNotExist"}]},
                   "sampling": {"minHz": 1, "maxHz": 97}, "offCPU": {"mode": "Allowed", "maxPerMille": 50},
                   "deniedTracers": ["perl", "php"], "allowedDestinations": ["main"],
                   "tenantDestinations": "SameNamespaceSecret", "podOptOut": "Forbidden",
                   "tenantEndpoints": ["otel.example.com", "*.tenants.example.com:4317", "[2001:db8::1]:443"]},
    "agent": {**FULL_AGENT, "nodeSelector": {"kubernetes.io/os": "linux"}},
    "budget": {"cpu": "0.5%", "memory": "128Mi"},
    "nodeGroups": [{"name": "gpu", "nodeSelector": {"matchLabels": {"gpu": "yes"}}, "sampling": {"hz": 199},
                    "agent": FULL_AGENT}],
    "probes": [{"probe": "uprobe:/usr/lib/x86_64-linux-gnu/libc.so.6:malloc", "rate": 10000}, {"probe": "kprobe:vfs_read"},
               {"probe": "uretprobe:/srv/a:b/c:main.(*T).Get"}, {"probe": "tracepoint:sched:sched_process_exec"}],
}

# The server evaluates rules over several fields only when each field has a valid type and is within its bounds.
UNCHECKED = ("<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; "
             "correct the existing errors to complete validation")

ROWS = [
    # ---- the cluster's config
    ("empty: all built-in", CLUSTER, {}, ()),
    ("every field", CLUSTER, FULL_CLUSTER, ()),
    ("the largest numbers", CLUSTER,
     {"defaults": {"sampling": {"hz": 1000}, "offCPU": {"perMille": 1000}},
      "guardrails": {"sampling": {"minHz": 1000, "maxHz": 1000}, "offCPU": {"maxPerMille": 1000}},
      "agent": {"reportIntervalSeconds": 60}}, ()),
    ("the smallest numbers", CLUSTER,
     {"defaults": {"sampling": {"hz": 1}, "offCPU": {"perMille": 0}},
      "guardrails": {"sampling": {"minHz": 1, "maxHz": 1}, "offCPU": {"maxPerMille": 0}},
      "agent": {"reportIntervalSeconds": 1}}, ()),
    ("empty lists are no absent lists", CLUSTER,
     {"defaults": {"destinationRefs": []}, "guardrails": {"allowedDestinations": [], "deniedTracers": []},
      "metadata": {"podLabels": []}, "destinations": [], "agent": {"tolerations": []}, "nodeGroups": []}, ()),
    ("eight destinations", CLUSTER, {"destinations": [otlp(name=f"d{i}") for i in range(8)]}, ()),
    ("no spec", CLUSTER, None,
     ("spec: Required value", UNCHECKED)),
    ("another name", CLUSTER, {},
     ('<nil>: Invalid value: metadata.name: want "cluster", got "production"',), "production"),
    ("refs without destinations", CLUSTER, {"defaults": {"destinationRefs": ["main"]}},
     ('spec.defaults.destinationRefs: Invalid value: want names of spec.destinations, got ["main"]',)),
    ("refs to others", CLUSTER, {**to(), "defaults": {"destinationRefs": ["a", "main", "b"]}},
     ('spec.defaults.destinationRefs: Invalid value: want names of spec.destinations, got ["a", "b"]',)),
    ("allowed but not there", CLUSTER, {**to(), "guardrails": {"allowedDestinations": ["mian"]}},
     ('spec.guardrails.allowedDestinations: Invalid value: want names of spec.destinations, got ["mian"]',)),
    ("sixteen probes", CLUSTER, {"probes": [{"probe": f"kprobe:f{i}"} for i in range(16)]}, ()),
    ("a probe without its path", CLUSTER, {"probes": [{"probe": "kprobe:vfs_read"}, {"probe": "uprobe:malloc"}]},
     ('spec.probes[1].probe: Invalid value: "uprobe:malloc": want uprobe:PATH:FUNCTION, uretprobe:PATH:FUNCTION, '
      'kprobe:FUNCTION or tracepoint:SUBSYSTEM:NAME, got "uprobe:malloc"',)),
    ("a probe with a rate in its name", CLUSTER, {"probes": [{"probe": "uprobe:/a:f,rate=1"}]},
     ('spec.probes[0].probe: Invalid value: "uprobe:/a:f,rate=1": want the rate in the field rate',)),
    ("mode of its own", CLUSTER, {"defaults": {"mode": "Sometimes"}},
     ('spec.defaults.mode: Unsupported value: "Sometimes": supported values: "Enabled", "Disabled", "OptIn"',
      UNCHECKED)),
    ("a cluster's name with blanks", CLUSTER, {"metadata": {"clusterName": "the cluster"}},
     ('spec.metadata.clusterName: Invalid value: "the cluster": want letters and digits, "-_.:/" between them, '
      'got "the cluster"',)),
    ("a bool for an enum", CLUSTER, {"metadata": {"wellKnownLabels": True}},
     ('spec.metadata.wellKnownLabels: Invalid value: "boolean": spec.metadata.wellKnownLabels in body must be of '
      'type string: "boolean"',
      'spec.metadata.wellKnownLabels: Unsupported value: true: supported values: "Enabled", "Disabled"',
      UNCHECKED)),
    ("endpoint with a scheme", CLUSTER, {"guardrails": {"tenantEndpoints": ["https://otel.example.com"]}},
     ('spec.guardrails.tenantEndpoints[0]: Invalid value: "https://otel.example.com": want HOST, *.DOMAIN or [IPv6], '
      'each with or without :PORT, got "https://otel.example.com"',)),
    ("endpoint with a port that there is not", CLUSTER,
     {"guardrails": {"tenantEndpoints": ["otel.example.com:65535", "otel.example.com:65536"]}},
     ('spec.guardrails.tenantEndpoints[1]: Invalid value: "otel.example.com:65536": want HOST, *.DOMAIN or [IPv6], '
      'each with or without :PORT, got "otel.example.com:65536"',)),
    ("unknown tracer denied", CLUSTER, {"guardrails": {"deniedTracers": ["java"]}},
     ('spec.guardrails.deniedTracers[0]: Unsupported value: "java": supported values: "native", "go", "jvm", '
      '"python", "v8", "ruby", "php", "perl", "dotnet", "beam", "luajit"',
      UNCHECKED)),
    ("tracer denied twice", CLUSTER, {"guardrails": {"deniedTracers": ["go", "go"]}},
     ('spec.guardrails.deniedTracers[1]: Duplicate value: "go"',)),
    ("range upside down", CLUSTER, {"guardrails": {"sampling": {"minHz": 100, "maxHz": 50}}},
     ("spec.guardrails.sampling.minHz: Invalid value: want at most maxHz, 50, got 100",)),
    ("budget without its unit", CLUSTER, {"budget": {"cpu": "50"}},
     ('spec.budget.cpu: Invalid value: "50": want a share of all CPUs, 0.01%..100%, got "50"',)),
    ("budget of more than all CPUs", CLUSTER, {"budget": {"cpu": "101%"}},
     ('spec.budget.cpu: Invalid value: "101%": want a share of all CPUs, 0.01%..100%, got "101%"',)),
    ("budget of too little memory", CLUSTER, {"budget": {"memory": "15Mi"}},
     ('spec.budget.memory: Invalid value: "15Mi": want a size in Mi or Gi, 16Mi..64Gi, got "15Mi"',)),
    ("per mille too large", CLUSTER, {"guardrails": {"offCPU": {"maxPerMille": 1001}}},
     ("spec.guardrails.offCPU.maxPerMille: Invalid value: 1001: spec.guardrails.offCPU.maxPerMille in body should be"
      " less than or equal to 1000",)),
    ("key with a blank", CLUSTER, {"metadata": {"podLabels": ["my team"]}},
     ('spec.metadata.podLabels[0]: Invalid value: "my team": want a key such as team or example.com/team, got "my '
      'team"',)),
    ("33 keys", CLUSTER, {"metadata": {"podLabels": [f"k{i}" for i in range(33)]}},
     ("spec.metadata.podLabels: Too many: 33: must have at most 32 items", UNCHECKED)),
    ("nine destinations", CLUSTER, {"destinations": [otlp(name=f"d{i}") for i in range(9)]},
     ("spec.destinations: Too many: 9: must have at most 8 items", UNCHECKED)),
    ("misspelt field", CLUSTER, {"defaults": {"samplng": {"hz": 5}}},
     ('ClusterProfilingConfig in version "v1alpha1" cannot be handled as a ClusterProfilingConfig: strict decoding '
      'error: unknown field "spec.defaults.samplng"',)),

    # ---- destinations
    ("plaintext by URL", CLUSTER, to("http://otel:4317"), ()),
    ("plaintext by mode", CLUSTER, to(tls={"mode": "Plaintext"}), ()),
    ("plaintext twice", CLUSTER, to("http://otel:4317", tls={"mode": "Plaintext"}), ()),
    ("IPv6", CLUSTER, to("[fd00::1]:4317"), ()),
    ("a host that begins like a URL", CLUSTER, to("httpd:4317"), ()),
    ("URL with a final slash", CLUSTER, to("https://[fd00::1]:4317/"), ()),
    ("URL without port, by HTTP", CLUSTER, to("https://otel.example.com/", protocol="HTTP"), ()),
    ("port 65535", CLUSTER, to("otel:65535"), ()),
    ("neither otlp nor text", CLUSTER, {"destinations": [{"name": "main"}]},
     ("spec.destinations[0]: Invalid value: want one of otlp and text, got none",)),
    ("otlp and text", CLUSTER, {"destinations": [{**otlp(), "text": {}}]},
     ("spec.destinations[0]: Invalid value: want one of otlp and text, got both",)),
    ("destination without a name", CLUSTER, {"destinations": [{"text": {}}]},
     ("spec.destinations[0].name: Required value", UNCHECKED)),
    ("the same name twice", CLUSTER, {"destinations": [otlp(), otlp()]},
     ('spec.destinations[1]: Duplicate value: {"name":"main"}',)),
    ("name in capitals", CLUSTER, to(name="Main"),
     ('spec.destinations[0].name: Invalid value: "Main": want lower case letters, digits and "-", got "Main"',)),
    ("no endpoint", CLUSTER, {"destinations": [{"name": "main", "otlp": {}}]},
     ("spec.destinations[0].otlp.endpoint: Required value", UNCHECKED)),
    ("empty endpoint", CLUSTER, to(""),
     ('spec.destinations[0].otlp.endpoint: Invalid value: "": spec.destinations[0].otlp.endpoint in body should be '
      "at least 1 chars long",
      'spec.destinations[0].otlp.endpoint: Invalid value: "": want HOST:PORT, http://HOST[:PORT] or '
      'https://HOST[:PORT], got ""')),
    ("endpoint without port", CLUSTER, to("otel"),
     ('spec.destinations[0].otlp.endpoint: Invalid value: "otel": want HOST:PORT, http://HOST[:PORT] or '
      'https://HOST[:PORT], got "otel"',)),
    ("endpoint of another scheme", CLUSTER, to("grpc://otel:4317"),
     ('spec.destinations[0].otlp.endpoint: Invalid value: "grpc://otel:4317": want HOST:PORT, http://HOST[:PORT] or '
      'https://HOST[:PORT], got "grpc://otel:4317"',)),
    ("password in the URL", CLUSTER, to("https://me:secret@otel:4317"),
     ('spec.destinations[0].otlp.endpoint: Invalid value: "https://me:secret@otel:4317": want HOST:PORT, '
      'http://HOST[:PORT] or https://HOST[:PORT], got "https://me:secret@otel:4317"',)),
    ("port 65536", CLUSTER, to("otel:65536"),
     ('spec.destinations[0].otlp.endpoint: Invalid value: "otel:65536": want a port of 1..65535, got "otel:65536"',)),
    ("port 0", CLUSTER, to("http://otel:0/"),
     ('spec.destinations[0].otlp.endpoint: Invalid value: "http://otel:0/": want a port of 1..65535, got '
      '"http://otel:0/"',)),
    ("HTTP without scheme", CLUSTER, to("otel:4318", protocol="HTTP"),
     ("spec.destinations[0].otlp.endpoint: Invalid value: want http:// or https:// with protocol HTTP, got "
      '"otel:4318"',)),
    ("HTTP to a host that begins like a URL", CLUSTER, to("httpd:4318", protocol="HTTP"),
     ("spec.destinations[0].otlp.endpoint: Invalid value: want http:// or https:// with protocol HTTP, got "
      '"httpd:4318"',)),
    ("gRPC by URL without port", CLUSTER, to("https://[fd00::1]"),
     ('spec.destinations[0].otlp.endpoint: Invalid value: want a port with protocol GRPC, got "https://[fd00::1]"',)),
    ("gRPC with a path", CLUSTER, to("https://otel:4317/v1/profiles"),
     ("spec.destinations[0].otlp.endpoint: Invalid value: want no path with protocol GRPC, got "
      '"https://otel:4317/v1/profiles"',)),
    ("https in plaintext", CLUSTER, to("https://otel:4317", tls={"mode": "Plaintext"}),
     ("spec.destinations[0].otlp.tls.mode: Invalid value: want Verify or SkipVerify with an https:// endpoint, got "
      "Plaintext",)),
    ("http with a CA", CLUSTER, to("http://otel:4317", tls={"caSecretRef": {"name": "ca", "key": "ca.crt"}}),
     ("spec.destinations[0].otlp.tls: Invalid value: want mode Plaintext or no tls with an http:// endpoint",)),
    ("plaintext with a server name", CLUSTER, to(tls={"mode": "Plaintext", "serverName": "otel"}),
     ("spec.destinations[0].otlp.tls: Invalid value: want no serverName, caSecretRef or clientCertificateSecretRef "
      "with mode Plaintext",)),
    ("unverified with a CA", CLUSTER,
     to(tls={"mode": "SkipVerify", "caSecretRef": {"name": "ca", "key": "ca.crt"}}),
     ("spec.destinations[0].otlp.tls.caSecretRef: Invalid value: want no CA with mode SkipVerify, which does not "
      "verify",)),
    ("CA without key", CLUSTER, to(tls={"caSecretRef": {"name": "ca"}}),
     ("spec.destinations[0].otlp.tls.caSecretRef.key: Required value", UNCHECKED)),
    ("secret in capitals", CLUSTER, to(tls={"clientCertificateSecretRef": {"name": "Client"}}),
     ('spec.destinations[0].otlp.tls.clientCertificateSecretRef.name: Invalid value: "Client": want lower case '
      'letters, digits, "-" and ".", got "Client"',)),
    ("protocol in lower case", CLUSTER, to(protocol="grpc"),
     ('spec.destinations[0].otlp.protocol: Unsupported value: "grpc": supported values: "GRPC", "HTTP"', UNCHECKED)),
    ("no time", CLUSTER, to(timeoutSeconds=0),
     ("spec.destinations[0].otlp.timeoutSeconds: Invalid value: 0: spec.destinations[0].otlp.timeoutSeconds in body "
      "should be greater than or equal to 1",)),
    ("a duration for seconds", CLUSTER, to(timeoutSeconds="5s"),
     ('spec.destinations[0].otlp.timeoutSeconds: Invalid value: "string": spec.destinations[0].otlp.timeoutSeconds '
      'in body must be of type integer: "string"',
      UNCHECKED)),
    ("header in two lists", CLUSTER,
     to(headers=[{"name": "Authorization", "value": "x"}],
        headersFrom=[{"name": "authorization", "secretRef": {"name": "s", "key": "k"}}]),
     ("spec.destinations[0].otlp.headersFrom: Invalid value: want each header in one of headers and headersFrom, got"
      ' ["Authorization"] in both',)),
    ("header twice", CLUSTER, to(headers=[{"name": "x-a", "value": "1"}, {"name": "X-A", "value": "2"}]),
     ("spec.destinations[0].otlp.headers: Invalid value: want each header once, in upper or lower case",)),
    ("header of the exporter", CLUSTER, to(headers=[{"name": "Content-Type", "value": "x"}]),
     ('spec.destinations[0].otlp.headers[0].name: Invalid value: "Content-Type": want none of the headers that the '
      'exporter sets itself, got "Content-Type"',)),
    ("header with a line break", CLUSTER, to(headers=[{"name": "x-a", "value": "1\r\nx-b: 2"}]),
     ('spec.destinations[0].otlp.headers[0].value: Invalid value: "1\\r\\nx-b: 2": want printable ASCII without blanks'
      " at the ends",)),
    ("header without secret", CLUSTER, to(headersFrom=[{"name": "x-a"}]),
     ("spec.destinations[0].otlp.headersFrom[0].secretRef: Required value", UNCHECKED)),
    ("text with settings", CLUSTER, {"destinations": [{"name": "main", "text": {"width": 80}}]},
     ('ClusterProfilingConfig in version "v1alpha1" cannot be handled as a ClusterProfilingConfig: strict decoding '
      'error: unknown field "spec.destinations[0].text.width"',)),

    # ---- the agent
    ("CPU as a number", CLUSTER, agent(resources={"requests": {"cpu": 1}, "limits": {"cpu": "1000m"}}), ()),
    ("one node at a time", CLUSTER, agent(updateStrategy={"maxUnavailable": 1}), ()),
    ("all nodes at once", CLUSTER, agent(updateStrategy={"maxUnavailable": "100%"}), ()),
    ("no node at a time", CLUSTER, agent(updateStrategy={"maxUnavailable": 0}),
     ("spec.agent.updateStrategy.maxUnavailable: Invalid value: 0: want 1..100000 or 1%..100%, got 0",)),
    ("more than all nodes", CLUSTER, agent(updateStrategy={"maxUnavailable": "101%"}),
     ('spec.agent.updateStrategy.maxUnavailable: Invalid value: "101%": want 1..100000 or 1%..100%, got 101%',)),
    ("image with a blank", CLUSTER, agent(image="kiln agent"),
     ('spec.agent.image: Invalid value: "kiln agent": want an image reference, got "kiln agent"',)),
    ("empty image", CLUSTER, agent(image=""),
     ('spec.agent.image: Invalid value: "": spec.agent.image in body should be at least 1 chars long',
      'spec.agent.image: Invalid value: "": want an image reference, got ""')),
    ("half a CPU as a float", CLUSTER, agent(resources={"requests": {"cpu": 0.5}}),
     ('spec.agent.resources.requests.cpu: Invalid value: "number": spec.agent.resources.requests.cpu in body must be'
      ' of type integer,string: "number"',
      UNCHECKED)),
    ("negative memory", CLUSTER, agent(resources={"limits": {"memory": "-1Gi"}}),
     ('spec.agent.resources.limits.memory: Invalid value: "-1Gi": want a quantity of 0 or more, such as 500m or '
      '256Mi, got "-1Gi"',)),
    ("memory in which no agent starts", CLUSTER, agent(resources={"limits": {"memory": "1Mi"}}),
     ("spec.agent.resources.limits.memory: Invalid value: want 128Mi or more, got 1Mi",)),
    ("memory in bytes in which no agent starts", CLUSTER, agent(resources={"limits": {"memory": 1048576}}),
     ("spec.agent.resources.limits.memory: Invalid value: want 128Mi or more, got 1048576",)),
    ("the least memory", CLUSTER, agent(resources={"limits": {"memory": "128Mi"}}), ()),
    ("what is not known is dropped", CLUSTER, agent(whenUnknown="Drop"),
     ('spec.agent.whenUnknown: Unsupported value: "Drop": supported values: "Hold", "Default"', UNCHECKED)),
    ("what is not known has the default", CLUSTER, agent(whenUnknown="Default"), ()),
    ("memory of unknown unit", CLUSTER, agent(resources={"limits": {"memory": "1GB"}}),
     ('spec.agent.resources.limits.memory: Invalid value: "1GB": want a quantity of 0 or more, such as 500m or '
      '256Mi, got "1GB"',)),
    ("request above the limit", CLUSTER,
     agent(resources={"requests": {"memory": "1Gi"}, "limits": {"memory": "512Mi"}}),
     ("spec.agent.resources.requests.memory: Invalid value: want at most the limit, 512Mi, got 1Gi",)),
    ("a resource that is none", CLUSTER, agent(resources={"limits": {"gpu": 1}}),
     ('ClusterProfilingConfig in version "v1alpha1" cannot be handled as a ClusterProfilingConfig: strict decoding '
      'error: unknown field "spec.agent.resources.limits.gpu"',)),
    ("toleration of all by Equal", CLUSTER, agent(tolerations=[{"operator": "Equal"}]),
     ("spec.agent.tolerations[0].operator: Invalid value: want Exists without a key",)),
    ("toleration Exists with value", CLUSTER, agent(tolerations=[{"key": "a", "operator": "Exists", "value": "b"}]),
     ('spec.agent.tolerations[0].value: Invalid value: want no value with operator Exists, got "b"',)),
    ("seconds without NoExecute", CLUSTER, agent(tolerations=[{"key": "a", "tolerationSeconds": 5}]),
     ("spec.agent.tolerations[0].tolerationSeconds: Invalid value: want effect NoExecute with tolerationSeconds",)),
    ("toleration of a value that no taint has", CLUSTER, agent(tolerations=[{"key": "a", "value": "b c"}]),
     ('spec.agent.tolerations[0].value: Invalid value: "b c": want a label value, got "b c"',)),
    ("toleration of a key that no taint has", CLUSTER, agent(tolerations=[{"key": "a b", "operator": "Exists"}]),
     ('spec.agent.tolerations[0].key: Invalid value: "a b": want a key such as team or example.com/team, got "a b"',)),
    ("the operator's own label", CLUSTER, agent(podLabels={"team": "a", "app.kubernetes.io/name": "x"}),
     ("spec.agent.podLabels: Invalid value: want none of the keys that the operator sets itself, got "
      '["app.kubernetes.io/name"]',)),
    ("the operator's own annotation", CLUSTER, agent(podAnnotations={"profiling.kiln.dev/config-hash": "x"}),
     ("spec.agent.podAnnotations: Invalid value: want none of the keys that the operator sets itself, got "
      '["profiling.kiln.dev/config-hash"]',)),
    ("label value with a blank", CLUSTER, agent(podLabels={"team": "a b"}),
     ('spec.agent.podLabels[team]: Invalid value: "a b": want a label value, got "a b"',)),
    ("17 labels of nodes", CLUSTER, agent(nodeSelector={f"l{i}": "x" for i in range(17)}),
     ("spec.agent.nodeSelector: Too many: 17: must have at most 16 items", UNCHECKED)),
    ("window too long", CLUSTER, agent(reportIntervalSeconds=61),
     ("spec.agent.reportIntervalSeconds: Invalid value: 61: spec.agent.reportIntervalSeconds in body should be less "
      "than or equal to 60",)),

    # ---- node groups
    ("as many group labels as can be: 4 4 4", CLUSTER, groups(4, 4, 4), ()),
    ("as many group labels as can be: 3 3 3 2", CLUSTER, groups(3, 3, 3, 2), ()),
    ("as many group labels as can be: eight of 1", CLUSTER, groups(*[1] * 8), ()),
    ("too many group labels: 4 4 4 2", CLUSTER, groups(4, 4, 4, 2),
     ("spec.nodeGroups: Invalid value: want at most 64 as the product of the groups' counts of matchLabels (each "
      "DaemonSet must exclude the nodes of the groups before it)",)),
    ("too many group labels: 3 3 3 3", CLUSTER, groups(3, 3, 3, 3),
     ("spec.nodeGroups: Invalid value: want at most 64 as the product of the groups' counts of matchLabels (each "
      "DaemonSet must exclude the nodes of the groups before it)",)),
    ("too many group labels: 3 3 4 2", CLUSTER, groups(3, 3, 4, 2),
     ("spec.nodeGroups: Invalid value: want at most 64 as the product of the groups' counts of matchLabels (each "
      "DaemonSet must exclude the nodes of the groups before it)",)),
    ("group without labels", CLUSTER, groups(0),
     ("spec.nodeGroups[0].nodeSelector.matchLabels: Invalid value: 0: spec.nodeGroups[0].nodeSelector.matchLabels in"
      " body should have at least 1 properties",)),
    ("group with five labels", CLUSTER, groups(5),
     ("spec.nodeGroups[0].nodeSelector.matchLabels: Too many: 5: must have at most 4 items", UNCHECKED)),
    ("group's name too long", CLUSTER,
     {"nodeGroups": [{"name": "g" * 41, "nodeSelector": {"matchLabels": {"a": "b"}}}]},
     ("spec.nodeGroups[0].name: Too long: may not be more than 40 bytes", UNCHECKED)),
    ("group with a nodeSelector of its agent", CLUSTER,
     {"nodeGroups": [{"name": "g", "nodeSelector": {"matchLabels": {"a": "b"}}, "agent": {"nodeSelector": {}}}]},
     ('ClusterProfilingConfig in version "v1alpha1" cannot be handled as a ClusterProfilingConfig: strict decoding '
      'error: unknown field "spec.nodeGroups[0].agent.nodeSelector"',)),

    # ---- a namespace's config
    ("empty: all inherited", TENANT, {}, ()),
    ("the namespace's default", TENANT, {"profile": FULL_PROFILE}, ()),
    ("every field of a tenant", TENANT,
     {**select({"key": "tier", "operator": "NotIn", "values": ["batch"]}, app="api"), "priority": 1000,
      "profile": FULL_PROFILE, "destinations": [{"name": "own", "otlp": FULL_OTLP}]}, ()),
    ("every pod, first priority", TENANT, {"podSelector": {}, "priority": 0, **hz(1)}, ()),
    ("opt-in only", TENANT, {"profile": {"mode": "OptIn"}}, ()),
    ("refs to what the cluster may have", TENANT, {"profile": {"destinationRefs": ["anything"]}}, ()),
    ("priority without selector", TENANT, {"priority": 5},
     ("spec.priority: Invalid value: want a priority only with podSelector, got 5",)),
    ("priority too high", TENANT, {"podSelector": {}, "priority": 1001},
     ("spec.priority: Invalid value: 1001: spec.priority in body should be less than or equal to 1000",)),
    ("negative priority", TENANT, {"podSelector": {}, "priority": -1},
     ("spec.priority: Invalid value: -1: spec.priority in body should be greater than or equal to 0",)),
    ("Hz too high", TENANT, hz(5000),
     ("spec.profile.sampling.hz: Invalid value: 5000: spec.profile.sampling.hz in body should be less than or equal "
      "to 1000",)),
    ("Hz of zero", TENANT, hz(0),
     ("spec.profile.sampling.hz: Invalid value: 0: spec.profile.sampling.hz in body should be greater than or equal "
      "to 1",)),
    ("Hz in words", TENANT, hz("fast"),
     ('spec.profile.sampling.hz: Invalid value: "string": spec.profile.sampling.hz in body must be of type integer: '
      '"string"',
      UNCHECKED)),
    ("Hz with a fraction", TENANT, hz(19.5),
     ('spec.profile.sampling.hz: Invalid value: "float64": spec.profile.sampling.hz in body must be of type int32: '
      '"float64"',
      '<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.profile.sampling.hz',
      UNCHECKED)),
    ("Hz and per mille", TENANT, {"profile": {"sampling": {"hz": 1001}, "offCPU": {"perMille": -1}}},
     ("spec.profile.offCPU.perMille: Invalid value: -1: spec.profile.offCPU.perMille in body should be greater than "
      "or equal to 0",
      "spec.profile.sampling.hz: Invalid value: 1001: spec.profile.sampling.hz in body should be less than or equal "
      "to 1000")),
    ("unknown tracer", TENANT, {"profile": {"tracers": {"erlang": "Auto"}}},
     ('ProfilingConfig in version "v1alpha1" cannot be handled as a ProfilingConfig: strict decoding error: unknown '
      'field "spec.profile.tracers.erlang"',)),
    ("tracer On", TENANT, {"profile": {"tracers": {"python": "On"}}},
     ('spec.profile.tracers.python: Unsupported value: "On": supported values: "Auto", "Enabled", "Disabled"',
      UNCHECKED)),
    ("a destination twice", TENANT, {"profile": {"destinationRefs": ["a", "a"]}},
     ('spec.profile.destinationRefs[1]: Duplicate value: "a"',)),
    ("refs to what no destination is called", TENANT, {"profile": {"destinationRefs": ["Main"]}},
     ('spec.profile.destinationRefs[0]: Invalid value: "Main": want lower case letters, digits and "-", got "Main"',)),
    ("nine refs", TENANT, {"profile": {"destinationRefs": [f"d{i}" for i in range(9)]}},
     ("spec.profile.destinationRefs: Too many: 9: must have at most 8 items", UNCHECKED)),
    ("In without values", TENANT, select({"key": "app", "operator": "In"}),
     ("spec.podSelector.matchExpressions[0].values: Invalid value: want values with operator In, got none",)),
    ("Exists with values", TENANT, select({"key": "app", "operator": "Exists", "values": ["a", "b"]}),
     ("spec.podSelector.matchExpressions[0].values: Invalid value: want no values with operator Exists, got 2",)),
    ("operator Equals", TENANT, select({"key": "app", "operator": "Equals", "values": ["a"]}),
     ('spec.podSelector.matchExpressions[0].operator: Unsupported value: "Equals": supported values: "In", "NotIn", '
      '"Exists", "DoesNotExist"',
      UNCHECKED)),
    ("selector's key with a blank", TENANT, select({"key": "a b", "operator": "Exists"}),
     ('spec.podSelector.matchExpressions[0].key: Invalid value: "a b": want a key such as team or example.com/team, '
      'got "a b"',)),
    ("17 labels", TENANT, select(**{f"l{i}": "x" for i in range(17)}),
     ("spec.podSelector.matchLabels: Too many: 17: must have at most 16 items", UNCHECKED)),
    ("17 values", TENANT, select({"key": "a", "operator": "In", "values": [f"v{i}" for i in range(17)]}),
     ("spec.podSelector.matchExpressions[0].values: Too many: 17: must have at most 16 items", UNCHECKED)),
    ("label key of 318 characters", TENANT, select(**{"k" * 318: "x"}),
     ("spec.podSelector.matchLabels: Invalid value: want keys of 1..317 characters",)),
    ("text for a tenant", TENANT, {"destinations": [{"name": "out", "text": {}}]},
     ('ProfilingConfig in version "v1alpha1" cannot be handled as a ProfilingConfig: strict decoding error: unknown '
      'field "spec.destinations[0].text"',)),
    ("five destinations", TENANT, {"destinations": [otlp(name=f"d{i}") for i in range(5)]},
     ("spec.destinations: Too many: 5: must have at most 4 items", UNCHECKED)),
    ("guard-rails for a tenant", TENANT, {"guardrails": {"sampling": {"maxHz": 5}}},
     ('ProfilingConfig in version "v1alpha1" cannot be handled as a ProfilingConfig: strict decoding error: unknown '
      'field "spec.guardrails"',)),

    # ---- a node
    ("a node", NODE, {"nodeName": "node"}, ()),
    ("a node of another name", NODE, {"nodeName": "other"},
     ('spec.nodeName: Invalid value: want the object\'s name, "node", got "other"',)),
    ("a node without a name", NODE, {},
     ("spec.nodeName: Required value", UNCHECKED)),
]
