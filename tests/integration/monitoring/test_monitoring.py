# SPDX-License-Identifier: Apache-2.0
"""kustomize/components/monitoring: queries use existing metrics only, every alert fires when it should and has a runbook."""
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
COMPONENT = ROOT / "kustomize/components/monitoring"
DASHBOARDS = sorted((COMPONENT / "dashboards").glob("*.json"))
DOCS = (ROOT / "docs/monitoring.md").read_text()
RULES = (COMPONENT / "rules.yaml").read_text()
METRIC = re.compile(r"\b(?:kiln|workqueue)_[a-z0-9_]+")
RECORDED = re.compile(r"\bkiln:[a-z0-9_:]+")


def labels_of(text):
    return set(re.findall(r'(\w+)=\\"', text))


@pytest.fixture(scope="module")
def metrics():
    """{metric: its labels}, of the agent and of the operator, from the sources."""
    known = {}
    for _, name, labels in re.findall(r'^X\((\w+), \w+, "(\w+)", "(.*?)", "', (ROOT / "lib/metrics.def").read_text(), re.M):
        known.setdefault(name, set()).update(labels_of(labels))
    for source in (ROOT / "operator").rglob("*.c"):
        text = source.read_text()
        for name in set(re.findall(r'"((?:kiln|workqueue)_[a-z0-9_]+)"', text)):
            known.setdefault(name, set()).update(labels_of(text))
    assert len(known) > 100
    return known


def queries():
    for line in re.findall(r"expr: (?:\|\n((?: {8,}.*\n)+)|(.*)\n)", RULES):
        yield "rules.yaml", "".join(line)
    for path in DASHBOARDS:
        board = json.loads(path.read_text())
        for panel in board["panels"]:
            for target in panel["targets"]:
                yield f"{path.name}: {panel['title']}", target["expr"]


def test_every_query_names_metrics_that_there_are(metrics):
    recorded = set(re.findall(r"record: (\S+)", RULES))
    # Labels that Prometheus and the PodMonitors add to every series.
    given = {"namespace", "pod", "node", "job", "instance"}
    n = 0
    for where, query in queries():
        names = METRIC.findall(query)
        assert names or RECORDED.search(query) or re.search(r"\bup\b", query), (where, query)
        for name in names:
            n += 1
            assert name in metrics, f"{where}: there is no metric {name}"
        for name in RECORDED.findall(query):
            assert name in recorded, f"{where}: no rule records {name}"
        labels = set(re.findall(r"[{,]\s*(\w+)\s*(?:=~|!~|!=|=)", query))
        for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", query):
            labels.update(part.strip() for part in group.split(","))
        of_names = set().union(*(metrics[name] for name in names)) if names else set()
        assert labels <= given | of_names | {"name"}, f"{where}: {labels - given - of_names} in {query}"
    assert n > 50


def test_every_alert_has_its_runbook():
    alerts = re.findall(r"alert: (\w+)", RULES)
    assert len(alerts) == len(set(alerts)) == RULES.count("runbook:") == RULES.count("labels: {severity: ") > 15
    for alert in alerts:
        assert re.search(rf"^### .*\b{alert}\b", DOCS, re.M), f"docs/monitoring.md says nothing of {alert}"
        assert f'runbook: "docs/monitoring.md#{alert.lower()}"' in RULES
    for heading in re.findall(r"^### (.*)$", DOCS, re.M):
        for alert in heading.split(", "):
            assert alert in alerts, f"docs/monitoring.md explains {alert}, which is no alert"


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.name)
def test_panels_are_whole(path):
    board = json.loads(path.read_text())
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    places = set()
    for panel in board["panels"]:
        assert panel["title"] and panel["description"] and panel["targets"]
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        assert (place["x"], place["y"]) not in places
        places.add((place["x"], place["y"]))


@pytest.fixture(scope="module")
def promtool():
    made = subprocess.run([ROOT / "hack/lib/debian.sh", "prometheus", "bookworm", "prometheus"],
                          capture_output=True, text=True, timeout=280, check=False)
    if made.returncode == 77:
        pytest.skip(made.stderr.strip().splitlines()[-1])
    assert made.returncode == 0, made.stderr
    return Path(made.stdout.strip()) / "usr/bin/promtool"


AGENT = 'job="kiln-system/kiln-agent",namespace="kiln-system",pod="kiln-agent-a",node="a"'
STREAM = 'job="kiln-system/kiln-stream",namespace="kiln-system",pod="kiln-stream-a"'
OPERATOR = 'job="kiln-system/kiln-operator",namespace="kiln-system",pod="kiln-operator-a"'
# A healthy cluster: {series: values}, one value a minute, in promtool's notation.
WELL = {
    f"up{{{AGENT}}}": "1x180",
    f"up{{{STREAM}}}": "1x180",
    f"up{{{OPERATOR}}}": "1x180",
    f"kiln_operator_connected{{{AGENT}}}": "1x180",
    f"kiln_samples_total{{{AGENT}}}": "0+1200x180",
    f'kiln_samples_dropped_total{{{AGENT},reason="ring_full"}}': "0+1x180",
    f"kiln_samples_incomplete_total{{{AGENT}}}": "0+12x180",
    f'kiln_export_samples_total{{{AGENT},result="sent"}}': "0+1200x180",
    f'kiln_export_samples_total{{{AGENT},result="dropped"}}': "0x180",
    f'kiln_export_requests_total{{{AGENT},result="sent"}}': "0+12x180",
    f'kiln_export_requests_total{{{AGENT},result="rejected"}}': "3x180",
    f"kiln_export_queue_requests{{{AGENT}}}": "1x180",
    f"kiln_export_spool_requests{{{AGENT}}}": "0x180",
    f"kiln_memory_pressure{{{AGENT}}}": "1x180",
    f"kiln_samples_without_policy_total{{{AGENT}}}": "7x180",
    f"kiln_destinations_failed_total{{{AGENT}}}": "1x180",
    f"kiln_discovery_threads_late{{{AGENT}}}": "0x180",
    f'kiln_runtime_attach_total{{{AGENT},result="unsupported"}}': "2x180",
    f"kiln_kallsyms_restricted{{{AGENT}}}": "0x180",
    f'kiln_informer_errors_total{{{STREAM},kind="pods"}}': "4x180",
    f'kiln_cache_dropped_total{{{OPERATOR},cache="pods",reason="too_many"}}': "1x180",
    f"kiln_node_write_failures_total{{{OPERATOR}}}": "9x180",
    f"kiln_stream_peers{{{OPERATOR}}}": "2x180",
    f"kiln_stream_peers_whole{{{OPERATOR}}}": "2x180",
    f"kiln_streams_refused_total{{{STREAM}}}": "3x180",
    f"kiln_stream_token_review_errors_total{{{STREAM}}}": "2x180",
    f"kiln_stream_certificate_end_seconds{{{STREAM}}}": "2592000x180",
    f"kiln_stream_ca_end_seconds{{{STREAM}}}": "31536000x180",
}
# {alert: the series that differ from WELL when it has to fire}. None: the series is missing.
ILL = {
    "KilnAgentDown": {f"up{{{AGENT}}}": "0x180"},
    "KilnAgentWithoutOperator": {f"kiln_operator_connected{{{AGENT}}}": "0x180"},
    "KilnSamplesDropped": {f'kiln_samples_dropped_total{{{AGENT},reason="ring_full"}}': "0+60x180"},
    "KilnExportDrops": {f'kiln_export_samples_total{{{AGENT},result="dropped"}}': "0+60x180"},
    "KilnExportRejected": {f'kiln_export_requests_total{{{AGENT},result="rejected"}}': "0+1x180"},
    "KilnExportStalled": {f'kiln_export_requests_total{{{AGENT},result="sent"}}': "5x180"},
    "KilnStacksIncomplete": {f"kiln_samples_incomplete_total{{{AGENT}}}": "0+240x180"},
    "KilnMemoryPressure": {f"kiln_memory_pressure{{{AGENT}}}": "2x180"},
    "KilnSamplesWithoutPolicy": {f"kiln_samples_without_policy_total{{{AGENT}}}": "0+1x180"},
    "KilnDestinationFailed": {f"kiln_destinations_failed_total{{{AGENT}}}": "0+1x180"},
    "KilnFilesystemHangs": {f"kiln_discovery_threads_late{{{AGENT}}}": "1x180"},
    "KilnRuntimeUnsupported": {f'kiln_runtime_attach_total{{{AGENT},result="unsupported"}}': "0+1x180"},
    "KilnKernelNamesHidden": {f"kiln_kallsyms_restricted{{{AGENT}}}": "1x180"},
    "KilnOperatorDown": {f"up{{{OPERATOR}}}": None},
    "KilnStreamDown": {f"up{{{STREAM}}}": "0x180"},
    "KilnInformerFails": {f'kiln_informer_errors_total{{{STREAM},kind="pods"}}': "0+1x180"},
    "KilnCacheLimit": {f'kiln_cache_dropped_total{{{OPERATOR},cache="pods",reason="too_many"}}': "0+1x180"},
    "KilnNodeStatusFails": {f"kiln_node_write_failures_total{{{OPERATOR}}}": "0+1x180"},
    "KilnStreamReplicaSilent": {f"kiln_stream_peers_whole{{{OPERATOR}}}": "1x180"},
    "KilnStreamRefuses": {f"kiln_streams_refused_total{{{STREAM}}}": "0+1x180"},
    "KilnTokenReviewsFail": {f"kiln_stream_token_review_errors_total{{{STREAM}}}": "0+1x180"},
    "KilnCertificateExpires": {f"kiln_stream_certificate_end_seconds{{{STREAM}}}": "259200x180"},
}


def case(name, changed, firing):
    series = {**WELL, **changed}
    samples = [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in firing]
    return {
        "name": name, "interval": "1m",
        "input_series": [{"series": k, "values": v} for k, v in series.items() if v is not None],
        "promql_expr_test": [{"expr": 'count by (alertname) (ALERTS{alertstate="firing"})', "eval_time": "150m",
                              "exp_samples": samples}],
    }


def test_alerts_fire_when_they_should_and_only_then(promtool, tmp_path):
    assert set(ILL) == set(re.findall(r"alert: (\w+)", RULES))
    spec = RULES.split("\nspec:\n", 1)[1]
    (tmp_path / "rules.yaml").write_text("\n".join(line.removeprefix("  ") for line in spec.splitlines()) + "\n")
    cases = [case("a cluster that is well", {}, [])] + [case(alert, changed, [alert]) for alert, changed in ILL.items()]
    # JSON is valid YAML.
    (tmp_path / "test.yaml").write_text(json.dumps({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": cases}))
    for what in (["check", "rules", "--lint-fatal", "rules.yaml"], ["test", "rules", "test.yaml"]):
        done = subprocess.run([promtool, *what], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(os.environ.get("KILN_MATRIX") != "1", reason="only in the matrix: the types have to be built")
def test_monitors_and_rules_fit_the_types_of_prometheus_operator(tmp_path):
    """The API server does not know these kinds, so its strict validation does not cover them."""
    program = tmp_path / "schema"
    subprocess.run(["nice", "go", "build", "-o", program, "."], cwd=Path(__file__).parent / "schema", check=True, timeout=300)

    def said(text):
        return subprocess.run([program], input=text, capture_output=True, text=True, check=False).stderr

    objects = [o for name in ("pod_monitors.yaml", "rules.yaml") for o in re.split(r"^---$", (COMPONENT / name).read_text(), flags=re.M)]
    assert len(objects) >= 4
    for text in objects:
        assert said(text) == ""
    assert 'unknown field "relabelling"' in said(objects[0].replace("relabelings:", "relabelling:"))
