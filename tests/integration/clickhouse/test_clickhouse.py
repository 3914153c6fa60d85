# SPDX-License-Identifier: Apache-2.0
"""deploy/clickhouse unchanged, with an agent, a Collector and ClickHouse's engine: the queries return what the agent counted.

Only the HTTP server in front of the engine is the test's (server.py)."""
import json
import pathlib
import re
import subprocess
import sys
import urllib.request

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "agent"))
import parts  # noqa: E402
from parts import ROOT, wait_until  # noqa: E402

RECIPE = ROOT / "deploy/clickhouse"
SECONDS = 5
HZ = 97


def statements(name):
    """{first line of the comment above a statement: the statement} of a SQL file."""
    text = (RECIPE / name).read_text()
    plain = re.sub(r"--.*", "", text).split(";\n")
    titles = re.findall(r"\n\n-- (.*)", text)
    found = [s.strip() for s in plain if s.strip()]
    return found if name == "schema.sql" else dict(zip(titles, found, strict=True))


@pytest.fixture(scope="module")
def clickhouse():
    """A server with the schema. Gives query(statement), which returns the rows of the answer."""
    made = subprocess.run([ROOT / "hack/lib/pypi.sh", "clickhouse"], capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip("no ClickHouse: " + made.stderr.strip()[-300:])
    port = parts.free_port()
    with subprocess.Popen([made.stdout.strip(), HERE / "server.py", str(port)]) as server:
        def query(statement):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", statement.encode(), timeout=60) as answer:
                text = answer.read().decode()
            return json.loads(text)["data"] if text else []

        query.port = port
        try:
            wait_until("ClickHouse", lambda: server.poll() is not None or parts.http_get(f"http://127.0.0.1:{port}/"))
            for statement in statements("schema.sql") * 2:  # applying it twice must have the effect of once
                query(statement)
            yield query
        finally:
            server.kill()


@pytest.fixture(scope="module")
def shop(clickhouse, tmp_path_factory):
    """Profiles tests/first-hour/shop.c into ClickHouse. {stack, root first: CPU seconds}, from the agent's folded file."""
    directory = tmp_path_factory.mktemp("shop")
    subprocess.run(["cc", "-O2", "-o", directory / "shop", ROOT / "tests/first-hour/shop.c"], check=True)
    otlp = parts.free_port()
    config = (RECIPE / "collector.yaml").read_text()
    for there, here in (("0.0.0.0:4317", f"127.0.0.1:{otlp}"), ("//clickhouse:8123", f"//127.0.0.1:{clickhouse.port}")):
        assert there in config
        config = config.replace(there, here)
    (directory / "collector.yaml").write_text(config.replace("service:", "service:\n  telemetry: {metrics: {level: none}}"))
    log = directory / "collector.log"
    with open(log, "wb") as out, subprocess.Popen(
            [parts.components.collector(), "--feature-gates=service.profilesSupport",
             f"--config={directory / 'collector.yaml'}"], stdout=out, stderr=out) as collector:
        wait_until("the Collector", lambda: collector.poll() is not None or "Everything is ready" in log.read_text())
        assert collector.poll() is None, log.read_text()
        agent = parts.agent.Agent("--collection-agent", f"127.0.0.1:{otlp}", "--disable-tls", "--samples-per-second", str(HZ),
                                  "--process-filter", "^shop$", "--folded-file", directory / "x.folded", "--tags",
                                  "k8s.namespace.name=prod,k8s.deployment.name=shop,k8s.pod.name=shop-1")
        try:
            parts.profiling(agent)
            subprocess.run([directory / "shop", str(SECONDS)], check=True, stdout=subprocess.DEVNULL)
            assert agent.stop() == 0, agent.stderr()
        finally:
            agent.close()
            collector.terminate()
        assert collector.wait(60) == 0
        complaints = [line for line in log.read_text().splitlines() if "\terror\t" in line]
        assert complaints == []
    # The first element of a folded stack is the process; drop it.
    return {stack.partition(";")[2]: n * parts.period(HZ) / 1e9 for stack, n in parts.folded(directory / "x.folded").items()}


def own_seconds(shop, function):
    return sum(seconds for stack, seconds in shop.items() if stack.endswith(f";{function}"))


def test_top_functions_by_deployment(clickhouse, shop):
    rows = clickhouse(statements("queries.sql")["Top functions by deployment: seconds of CPU in the function itself, and in "
                                                "it and all that it calls."])
    assert {(r["namespace"], r["workload"]) for r in rows} == {("prod", "shop")}
    total = sum(shop.values())
    assert 2 <= len(rows) <= 10
    own = {r["function"]: r["self_seconds"] for r in rows}
    whole = {r["function"]: r["total_seconds"] for r in rows}
    for function in ("knead", "bake"):
        assert abs(own[function] - own_seconds(shop, function)) < 1e-6, (own, shop)
        assert own[function] <= whole[function] <= total
    assert own["knead"] + own["bake"] > 0.5 * total


def test_every_query_answers(clickhouse, shop):
    """Every query of the documents answers, and its sums equal the agent's."""
    total = sum(shop.values())
    for title, statement in statements("queries.sql").items():
        rows = clickhouse(statement.replace("'malloc'", "'main'"))
        if "CPUs" in title:
            assert abs(sum(r["cpus"] * 60 for r in rows) - total) < 1e-6
        elif "wherever" in title:
            assert [(r["workload"], int(r["pods"])) for r in rows] == [("shop", 1)]
            through = sum(seconds for stack, seconds in shop.items() if "main" in stack.split(";"))
            assert abs(rows[0]["seconds"] - through) < 1e-6
        elif "folded" in title:
            stacks = {stack: int(ms) for stack, ms in (r["line"].rsplit(" ", 1) for r in rows)}
            assert abs(sum(stacks.values()) / 1e3 - total) <= 1e-3 * len(stacks)
            assert all(stack in shop for stack in stacks), (stacks, shop)


def test_a_row_says_what_it_is_of(clickhouse, shop):
    rows = clickhouse("SELECT DISTINCT type, service, workload_kind, pod, process, thread, node != '' AS on_node, pid > 0 AS p, "
                      "attributes['k8s.pod.name'] AS attribute, abs(now() - time) < 600 AS recent FROM kiln.samples")
    assert rows == [{"type": "cpu", "service": "", "workload_kind": "deployment", "pod": "shop-1", "process": "shop",
                     "thread": "shop", "on_node": 1, "p": 1, "attribute": "shop-1", "recent": 1}]


@pytest.mark.parametrize("inserted, want", [
    # As an agent sends it: keys and strings inline; timestamps instead of values.
    ({"resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "a"}}]},
      "samples": [{"stackIndex": 1, "timestampsUnixNano": ["5", "6"]}]}, ("cpu", "a", ["leaf", "root"], 20)),
    # Without a period the value itself is the measure.
    ({"resource": {}, "period": False, "samples": [{"stackIndex": 1, "values": ["7"]}]}, ("off_cpu", "", ["leaf", "root"], 7)),
    ({"resource": {}, "samples": [{"values": ["3"]}]}, ("cpu", "", [], 30)),
], ids=["timestamps", "no-period", "no-stack"])
def test_other_shapes_of_requests(clickhouse, inserted, want):
    period = {"period": "10", "periodType": {"typeStrindex": 3}} if inserted.get("period", True) else {}
    clickhouse("TRUNCATE TABLE kiln.samples")
    clickhouse("INSERT INTO kiln.otlp FORMAT JSONAsString " + json.dumps({
        "resourceProfiles": [{"resource": inserted["resource"], "scopeProfiles": [{"profiles": [{
            "sampleType": {"typeStrindex": 4}, "timeUnixNano": "1795777844510620566", **period,
            "samples": inserted["samples"]}]}]}],
        "dictionary": {"stringTable": ["", "leaf", "root", "cpu", "off_cpu"], "stackTable": [{}, {"locationIndices": [1, 2]}],
                       "locationTable": [{}, {"lines": [{"functionIndex": 1}]}, {"lines": [{"functionIndex": 2}]}],
                       "functionTable": [{}, {"nameStrindex": 1}, {"nameStrindex": 2}]}}))
    row, = clickhouse("SELECT type, service, stack, value FROM kiln.samples")
    assert (row["type"], row["service"], row["stack"], int(row["value"])) == want
