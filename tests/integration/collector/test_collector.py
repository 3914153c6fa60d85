# SPDX-License-Identifier: Apache-2.0
"""The exporters against a real OpenTelemetry Collector: every sample that was made arrives exactly once."""

import shutil
import signal
import subprocess
import time

import pytest

from conftest import LONG, expected, wait_until

OUTAGE = 60 if LONG else 10  # seconds
WAYS = [("grpc", "gzip"), ("grpc", "none"), ("grpc", "zstd"),
        ("http", "gzip"), ("http", "none"), ("http", "zstd")]


def target(collector, protocol, tls=False):
    if protocol == "grpc":
        return ["--protocol", "grpc", "--endpoint", f"127.0.0.1:{collector.grpc}",
                *([] if tls else ["--insecure"])]
    scheme = "https" if tls else "http"
    return ["--protocol", "http", "--endpoint", f"{scheme}://127.0.0.1:{collector.http}"]


def all_sent(end):
    return end["sent"] == end["made"] and end["drops"]["all"] == 0 and end["partial"] == 0


@pytest.mark.parametrize("protocol, compression", WAYS)
def test_every_sample_arrives_once(collector, send, protocol, compression):
    collector.start()
    s = send(*target(collector, protocol), "--compression", compression, "--batches", 5,
             "--samples", 40)
    end = s.end()
    assert all_sent(end) and end["retries"] == 0 and end["sent_requests"] == 5
    assert collector.samples() == expected(5, 40)
    warned = any("zstd is not in the gRPC library" in line for line in s.log)
    assert warned == ((protocol, compression) == ("grpc", "zstd"))


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_compression_is_on_the_wire(collector, send, proxy, protocol):
    collector.start()
    up = {}
    for compression in ("gzip", "none"):
        p = proxy(collector.grpc if protocol == "grpc" else collector.http)
        endpoint = f"http://127.0.0.1:{p.port}"
        send("--protocol", protocol, "--endpoint", endpoint, "--compression", compression,
             "--samples", 2000, "--prefix", compression).end()
        up[compression] = p.up
    assert up["gzip"] * 2 < up["none"], up
    assert len(collector.samples()) == 4000


@pytest.mark.parametrize("generation, protocol", [("v1.11", "grpc"), ("g6", "http")])
def test_generation_by_name(collector, send, generation, protocol):
    collector.start()
    assert all_sent(send(*target(collector, protocol), "--generation", generation).end())
    assert collector.samples() == expected(1, 10)


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_large_batch_is_split_below_the_receivers_limit(collector, send, protocol):
    collector.start()
    end = send(*target(collector, protocol), "--compression", "none", "--samples", 900, "--bloat",
               15000, "--timeout-ms", 20000, "--flush-ms", 25000).end()
    assert all_sent(end) and end["sent_requests"] >= 3
    assert collector.samples() == expected(1, 900)


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_an_outage_loses_and_doubles_nothing(collector, send, protocol):
    collector.start()
    batches = (OUTAGE + 4) * 5
    s = send(*target(collector, protocol), "--batches", batches, "--samples", 20, "--interval-ms",
             200, "--flush-ms", 20000)
    wait_until("first batches", lambda: s.lines and s.lines[-1]["sent_requests"] >= 3)
    collector.stop()
    wait_until("the sender notices", lambda: s.lines[-1]["down"])
    time.sleep(OUTAGE)
    assert s.lines[-1]["queue_requests"] > OUTAGE * 2
    collector.start()
    end = s.end(timeout=60)
    assert all_sent(end)
    assert collector.samples() == expected(batches, 20)
    # One log line when the Collector goes away and one when it is back, not one for each batch.
    assert sum("unreachable" in line for line in s.log) == 1, s.log
    assert sum("recovered" in line for line in s.log) == 1, s.log


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_what_was_left_at_the_end_goes_out_after_the_next_start(collector, send, tmp_path, protocol):
    storage = ["--storage", tmp_path / "spool"]
    end = send(*target(collector, protocol), *storage, "--batches", 3, "--prefix", "a",
               "--flush-ms", 500).end()
    assert end["sent"] == 0 and end["drops"]["all"] == 0
    collector.start()
    end = send(*target(collector, protocol), *storage, "--batches", 2, "--prefix", "b").end()
    assert end["sent_requests"] == 5 and end["spool_requests"] == 0
    assert collector.samples() == {**expected(3, 10, "a"), **expected(2, 10, "b")}


def test_a_full_queue_goes_to_disk_and_survives_a_kill(collector, send, tmp_path):
    args = [*target(collector, "grpc"), "--storage", tmp_path / "spool", "--queue-size", 2]
    s = send(*args, "--batches", 40, "--prefix", "a", "--interval-ms", 50)
    wait_until("a spool", lambda: s.lines and s.lines[-1]["spool_requests"] >= 10)
    s.process.send_signal(signal.SIGKILL)
    s.process.wait()
    collector.start()
    end = send(*args, "--batches", 1, "--prefix", "b").end()
    assert end["drops"]["all"] == 0 and end["spool_requests"] == 0
    got = collector.samples()
    whole = expected(40, 10, "a")
    # Only the requests in memory (two) were lost with the process.
    batches = sorted({int(n.split("-")[1]) for n in got if n.startswith("a-")})
    assert batches[0] <= 2 and batches == list(range(batches[0], batches[-1] + 1))
    assert len(batches) >= 10
    assert all(got[n] == whole[n] for n in got if n.startswith("a-"))


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_tls_with_own_authority(collector, send, pki, protocol):
    collector.tls = {"cert_file": f"{pki}/server.crt", "key_file": f"{pki}/server.key"}
    collector.start()
    args = target(collector, protocol, tls=True)
    assert all_sent(send(*args, "--ca", pki / "ca.crt", "--prefix", "a").end())
    assert all_sent(send(*args, "--skip-verify", "--prefix", "b").end())
    for wrong in (["--ca", pki / "other-ca.crt"], []):
        end = send(*args, *wrong, "--flush-ms", 1000, "--prefix", "c").end()
        assert end["sent"] == 0 and end["uncertain"] == 0 and end["retries"] > 0
    assert collector.samples() == {**expected(1, 10, "a"), **expected(1, 10, "b")}


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_another_authority_in_the_same_file(collector, send, tmp_path, protocol):
    """The CA file is replaced, as cert-manager does: the sender trusts the new CA without a restart."""
    for name in ("old", "new"):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                        "-keyout", tmp_path / f"{name}.key", "-out", tmp_path / f"{name}.crt", "-subj", "/CN=kiln",
                        "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    ca = tmp_path / "authority.crt"
    shutil.copy(tmp_path / "old.crt", ca)
    collector.tls = {"cert_file": f"{tmp_path}/old.crt", "key_file": f"{tmp_path}/old.key"}
    collector.start()
    s = send(*target(collector, protocol, tls=True), "--ca", ca, "--batches", 15, "--interval-ms", 300, "--initial-ms", 100,
             "--max-interval-ms", 300)
    wait_until("the first samples", lambda: s.lines and s.lines[-1]["sent"] > 0)
    collector.stop()
    collector.tls = {"cert_file": f"{tmp_path}/new.crt", "key_file": f"{tmp_path}/new.key"}
    shutil.copy(tmp_path / "new.crt", ca)
    collector.start()
    assert all_sent(s.end())


def test_a_request_that_is_refused_before_it_was_read(collector, send, pki):
    """Over HTTP/2 the server resets the stream after its answer: the answer counts, and the request is not sent again."""
    collector.tls, collector.body_max = {"cert_file": f"{pki}/server.crt", "key_file": f"{pki}/server.key"}, 20000
    collector.start()
    args = [*target(collector, "http", tls=True), "--ca", pki / "ca.crt", "--compression", "none", "--interval-ms", 100]
    end = send(*args, "--batches", 8, "--samples", 100, "--bloat", 50000).end()
    assert end["drops"]["rejected"] == end["made"] and end["uncertain"] == end["retries"] == 0, end
    assert all_sent(send(*args, "--prefix", "b").end())


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_tls_with_client_certificate(collector, send, pki, protocol):
    collector.tls = {"cert_file": f"{pki}/server.crt", "key_file": f"{pki}/server.key",
                     "client_ca_file": f"{pki}/ca.crt"}
    collector.start()
    args = [*target(collector, protocol, tls=True), "--ca", pki / "ca.crt"]
    own = ["--cert", pki / "client.crt", "--key", pki / "client.key"]
    assert all_sent(send(*args, *own).end())
    assert all_sent(send(*target(collector, protocol, tls=True), *own, "--skip-verify", "--prefix",
                         "skip").end())
    assert send(*args, "--flush-ms", 1000, "--prefix", "none").end()["sent"] == 0
    assert collector.samples() == {**expected(1, 10), **expected(1, 10, "skip")}


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_tls_server_name_override(collector, send, pki, protocol):
    collector.tls = {"cert_file": f"{pki}/named.crt", "key_file": f"{pki}/named.key"}
    collector.start()
    args = [*target(collector, protocol, tls=True), "--ca", pki / "ca.crt"]
    assert send(*args, "--flush-ms", 1000, "--prefix", "wrong").end()["sent"] == 0
    assert all_sent(send(*args, "--server-name", "collector.test").end())
    assert collector.samples() == expected(1, 10)


@pytest.mark.parametrize("args, words", [
    (["--protocol", "grpc", "--endpoint", "localhost"], "endpoint: want host:port"),
    (["--protocol", "grpc", "--endpoint", "ftp://x:1"], "endpoint: want host:port"),
    (["--protocol", "grpc", "--endpoint", "x:1", "--ca", "/nowhere"], "tls.ca_file: /nowhere"),
    (["--protocol", "grpc", "--endpoint", "x:1", "--insecure", "--header", "grpc-x=1"],
     "headers.grpc-x"),
    (["--protocol", "grpc", "--endpoint", "x:1", "--compression", "snappy"], "compression: want"),
    (["--protocol", "grpc", "--endpoint", "x:1", "--generation", "v7"], "proto_generation: want"),
    (["--protocol", "http", "--endpoint", "ftp://x"], "endpoint: want http:// or https://"),
    (["--protocol", "http", "--endpoint", "https://x", "--cert", "/dev/null"],
     "cert_file and key_file come together"),
    (["--protocol", "http", "--endpoint", "http://x", "--header", "a b=1"], "headers.a b"),
])
def test_settings_that_cannot_work_are_refused_with_words(send, args, words):
    s = send(*args)
    s.end(code=2)
    assert words in "\n".join(s.log)
