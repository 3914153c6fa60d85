# SPDX-License-Identifier: Apache-2.0
"""The rows of docs/from-other-profilers.md: each code block of other profilers' documents, and its equivalent with Kiln.
The documents are not in the tree: a row belongs to the block at its position, which must contain the row's `has`.
test_other_profilers.py runs the agent for the "outcome" column."""
import dataclasses


@dataclasses.dataclass
class Row:
    has: str  # a word or line that is in the block
    what: str
    here: str = ""  # how to do the same with Kiln, or why nothing changes


class Runs(Row):
    """A configuration, command line, manifest or unit that the agent accepts as written."""


class Receives(Row):
    """A configuration of a receiving Collector: the agent rejects it and tells to run a Collector."""


class Otherwise(Row):
    """Kiln does the same in another way."""


class Untouched(Row):
    """A block about the receiver, the store, the viewer or the kernel: it stays as it is."""


TEXT = "`kubectl -n kiln-system logs ds/kiln-agent`"
IMAGE = "`hack/images`, or `docker build -f deploy/agent.Dockerfile -t kiln-agent:0.1.0 .`"
SIMPLE = "`kubectl apply -k kustomize/overlays/simple`"
BUILD = "`./hack/build` makes the program; there is no builder and no list of parts"
VERSIONS = "Collector 0.136 and Pyroscope 1.15 are the first that take what Kiln sends: [versions](deploy.md#pyroscope-and-grafana)"
SWAP = "the image is `kiln-agent:0.1.0`"

DOCUMENTS = [
    ("github.com/danielpacak/opentelemetry-collector-ebpf-profiler, README", [
        Otherwise("clickhouse", "picture: agents, a Collector, Pyroscope and ClickHouse",
                  "agents, gateway and Pyroscope: `kustomize/overlays/pyroscope`. ClickHouse: [schema, Collector and queries](clickhouse.md)"),
        Runs("customprofilesreceiver", "configuration with two receivers and a text exporter"),
        Runs("docker run", "`docker run` of the agent", SWAP + "; it listens on no port of OTLP"),
        Runs("k8sattributes", "configuration with pod metadata and the `pprof` extension",
             "pod names, images, services and `k8s.cluster.uid` come from [the operator](operator.md)"),
        Otherwise("kubectl apply -k", "`kubectl apply -k`", SIMPLE),
        Otherwise("New Resource Profile", "the text exporter's output",
                  TEXT + ": the same lines, and one with the value below each sample's attributes"),
        Otherwise("kubectl apply -k", "`kubectl apply -k`, with Pyroscope",
                  "`kubectl apply -k kustomize/overlays/pyroscope`, and [the gateway's certificate](deploy.md#pyroscope-and-grafana)"),
        Untouched("svc/pyroscope 4040", "`port-forward` to Pyroscope", "the same namespace, name and port"),
        Otherwise("docker compose up", "`docker compose up`", "`docker compose -f deploy/compose.yaml up -d`; the same ports"),
        Otherwise("docker compose down", "`docker compose down`", "`docker compose -f deploy/compose.yaml down`"),
        Otherwise("amd64", "the builder, for amd64", BUILD),
        Otherwise("arm64", "the builder, for arm64", "`hack/arm64` compiles for arm64; it was not run there"),
        Otherwise("./ocb", "building the distribution", BUILD),
        Otherwise("binfmt", "setting up builds of images", "not needed: " + IMAGE),
        Otherwise("linux/amd64", "the image for amd64", IMAGE),
        Otherwise("linux/arm64", "the image for arm64", "no image for arm64 in this version"),
        Runs("docker run", "`docker run` of that image", SWAP),
        Otherwise("brew", "a virtual machine on macOS: the tool", "any Linux machine will do: [what it needs](../README.md#needs)"),
        Otherwise("limactl start", "its start", "a virtual machine with Debian 12"),
        Otherwise("limactl shell", "a shell in it", "in it `./hack/run`"),
        Otherwise("kubectl apply -k", "profiling the profiler: deploy", SIMPLE),
        Otherwise("1777", "`port-forward` to its port",
                  "agents of the operator do not open it, and are in the profile as any program is; those of your own DaemonSet have it with the `pprof` extension"),
        Untouched("go tool pprof", "`go tool pprof` on that port", "the same address and command"),
    ]),
    ("grafana.com/docs/pyroscope, OpenTelemetry eBPF profiler", [
        Otherwise("flowchart", "picture: profiler, Pyroscope, Grafana", "`kustomize/overlays/pyroscope`, with a gateway before Pyroscope"),
        Runs("samples_per_second: 97", "configuration with the `otlp_grpc` exporter"),
        Untouched("labelmap", "Pyroscope's rule for `service_name`",
                  "`kustomize/components/pyroscope/config/pyroscope.yaml` has one that prefers the service's own name"),
        Runs("k8sattributes/profiles", "pod metadata, added to that configuration"),
        Runs("pid: \"host\"", "compose file of profiler, Pyroscope 1.18.1 and Grafana",
             SWAP + ". Pyroscope 1.18.1 takes the form of v1.8: the agent finds out by itself and says so. A whole one: `deploy/compose.yaml`"),
        Runs("serviceAccountName", "DaemonSet", SWAP + ". The operator makes one that is not privileged"),
        Otherwise("sparse-checkout", "the example with Pyroscope and Grafana", "`kubectl apply -k kustomize/overlays/pyroscope`"),
    ]),
    ("oneuptime.com/blog: agent, Collector and Pyroscope", [
        Otherwise("-->", "picture: agent, gateway, Pyroscope", "`kustomize/overlays/pyroscope` has the three"),
        Runs("OTEL_PROFILER_SAMPLING_FREQUENCY", "DaemonSet that is configured by its environment alone", SWAP),
        Receives("otlphttp/pyroscope", "the gateway's configuration",
                 "Collector 0.161 refuses `batch` for profiles (the exporter's `sending_queue.batch` does it), and over HTTP Pyroscope loses labels: `kustomize/components/pyroscope/config/collector.yaml`"),
        Untouched("collector-contrib:0.96.0", "the gateway's Deployment",
                  "the image knows no profiles yet, and the flag `--feature-gates=service.profilesSupport` is missing; the agent's log says so. " + VERSIONS),
        Untouched("pyroscope:1.7.0", "Pyroscope's StatefulSet",
                  "1.7.0 has no OTLP profiles service; the agent's log says so. `kustomize/components/pyroscope/pyroscope.yaml` has a version that does"),
        Untouched("max_query_lookback", "Pyroscope's configuration", "`kustomize/components/pyroscope/config/pyroscope.yaml` is one for 2.2"),
        Otherwise("kubectl get pods", "does it work?",
                  "`kubectl -n kiln-system get pods -l app.kubernetes.io/name=kiln-agent`, `kubectl get profilingnodes`; the log's line `takes profiles`. Pyroscope is asked as before"),
    ]),
    ("oneuptime.com/blog: the profiler on Linux hosts", [
        Otherwise("perf_event_paranoid", "is the kernel ready?", "`kiln-agent --check` loads and attaches what a start would; no sysctl is changed"),
        Otherwise("curl", "download of the release", "`./hack/build`, then `install -m 755 build/release/bin/kiln-agent /usr/local/bin/`"),
        Runs("-reporter-interval 60s", "the command line", "the program is `kiln-agent`. The flag means TLS; when the port has none, the agent names `--disable-tls`"),
        Runs("ExecStart", "systemd unit", "the program is `kiln-agent`. `deploy/kiln-agent.service` does with fewer rights"),
        Otherwise("daemon-reload", "`systemctl`", "the same with `kiln-agent`: [as a service](../README.md#as-a-service)"),
        Receives("Authorization", "the Collector's configuration",
                 "Collector 0.161 refuses `batch` for profiles: leave it out. The agent can send there itself: `otlphttp` with `headers` is an exporter of it too"),
        Otherwise("journalctl", "the agent's log", "`journalctl -u kiln-agent`: `profiling at`, then `takes profiles` and a line each hour"),
        Untouched("grep -i profile", "the Collector's log"),
        Runs("-samples-per-second 50", "other rates"),
        Runs("-process-filter", "only some programs"),
        Otherwise("CPUQuota", "limits of the unit",
                  "`deploy/kiln-agent.service` has `MemoryMax=512M`. `CPUQuota=` goes into the unit as anywhere; what it takes away is lost, and counted"),
        Runs("monitoring", "DaemonSet that is configured by flags", SWAP + "; TLS as above"),
    ]),
    ("opentelemetry.io/blog: state of profiling (2025)", [
        Receives("otlp:", "configuration of a Collector"),
    ]),
]
