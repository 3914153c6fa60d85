# SPDX-License-Identifier: Apache-2.0
"""The page over TLS: a client without a certificate of the configured CA gets nothing."""
import http.client
import os
import ssl
import subprocess
import time

import pytest

from kiln import agent as kiln_agent
from running import CONFIG, Live
from stream import ask


NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)


def make_ca(dir, name):
    openssl("req", "-x509", *NEW_KEY, "-days", "2", "-subj", f"/CN={name}", "-keyout", f"{dir}/{name}.key",
            "-out", f"{dir}/{name}.pem")


def make_leaf(dir, name, ca):
    openssl("req", *NEW_KEY, "-subj", f"/CN={name}", "-keyout", f"{dir}/{name}.key", "-out", f"{dir}/{name}.csr")
    with open(f"{dir}/ext", "w", encoding="utf-8") as f:
        f.write("subjectAltName = IP:127.0.0.1, DNS:localhost\n")
    openssl("x509", "-req", "-in", f"{dir}/{name}.csr", "-CA", f"{dir}/{ca}.pem", "-CAkey", f"{dir}/{ca}.key",
            "-CAcreateserial", "-days", "2", "-extfile", f"{dir}/ext", "-out", f"{dir}/{name}.pem")


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    dir = tmp_path_factory.mktemp("keys")
    for ca in ("ca", "other-ca"):
        make_ca(dir, ca)
    for name, ca in (("server", "ca"), ("client", "ca"), ("stranger", "other-ca")):
        make_leaf(dir, name, ca)
    return dir


@pytest.fixture(scope="module")
def mutual(keys, tmp_path_factory):
    tls = f"tls: {{cert_file: {keys}/server.pem, key_file: {keys}/server.key, client_ca_file: {keys}/ca.pem}}"
    with Live(tmp_path_factory.mktemp("tls") / "stacks.folded", more=", " + tls) as a:
        yield a


def get(live, keys, path, client=None, version=None):
    """GETs PATH: (answer, body). Raises ssl.SSLError or ConnectionError when there is no answer."""
    context = ssl.create_default_context(cafile=f"{keys}/ca.pem")
    if client:
        context.load_cert_chain(f"{keys}/{client}.pem", f"{keys}/{client}.key")
    if version:
        context.minimum_version = context.maximum_version = version
        context.set_ciphers("ALL:@SECLEVEL=0")
    c = http.client.HTTPSConnection("127.0.0.1", live.port, timeout=60, context=context)
    try:
        c.request("GET", path)
        answer = c.getresponse()
        return answer, answer.read(300000) if answer.length is None else answer.read()
    finally:
        c.close()


def test_a_client_of_the_ca_gets_page_and_data(mutual, keys, busy):
    assert mutual.url.startswith("https://")
    end = time.monotonic() + 120
    while not get(mutual, keys, "/api/profile?format=folded", "client")[1] and time.monotonic() < end:
        time.sleep(0.2)  # the first window
    for path in ("/", "/app.js", "/api/profile?format=folded"):
        answer, body = get(mutual, keys, path, "client")
        assert answer.status == 200 and len(body) > 100, path
    answer, body = get(mutual, keys, "/api/profile", "client", version=ssl.TLSVersion.TLSv1_2)
    assert answer.status == 200 and body[:2] == b"\x1f\x8b"


def test_the_stream_goes_on_over_tls(mutual, keys):
    context = ssl.create_default_context(cafile=f"{keys}/ca.pem")
    context.load_cert_chain(f"{keys}/client.pem", f"{keys}/client.key")
    c = http.client.HTTPSConnection("127.0.0.1", mutual.port, timeout=60, context=context)
    c.request("GET", "/api/stream")
    answer, kinds = c.getresponse(), []
    while len([k for k in kinds if k >= 2]) < 4:  # message kinds 2 and above are windows, past and new
        n = int.from_bytes(answer.read(4), "little")
        kinds.append(answer.read(n)[0])
    c.close()
    assert kinds[:2] == [0, 1]


@pytest.mark.parametrize("client", [None, "stranger"])
def test_nobody_else_gets_anything(mutual, keys, client):
    # With TLS 1.3 the client may have sent its request before it learns of the rejection, hence several exceptions.
    with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
        get(mutual, keys, "/", client)
    answer, _ = get(mutual, keys, "/", "client")
    assert answer.status == 200


def test_plain_http_and_old_tls_get_nothing(mutual, keys):
    assert ask(mutual.port, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n") in (0, 400, 403)
    with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
        get(mutual, keys, "/", "client", version=ssl.TLSVersion.TLSv1_1)


@pytest.mark.parametrize("tls, want", [
    ("cert_file: /nowhere.pem, key_file: {0}/server.key",
     "extensions.live: tls: /nowhere.pem: No such file or directory"),
    ("cert_file: {0}/server.pem, key_file: {0}/client.key",
     "client.key: no key of this certificate: key values mismatch"),
    ("cert_file: {0}/server.pem, key_file: {0}/server.key, client_ca_file: /dev/null",
     "extensions.live: tls: /dev/null: no certificate"),
    ("cert_file: {0}/server.pem", "extensions.live.tls: cert_file and key_file come together"),
    ("client_ca_file: {0}/ca.pem", "extensions.live.tls.client_ca_file: want cert_file and key_file, too"),
], ids=["no file", "another key", "no CA", "no key", "only a CA"])
def test_what_is_wrong_with_the_files_is_said(keys, tls, want):
    more = ", tls: {" + tls.format(keys) + "}"
    with kiln_agent.Agent(config=CONFIG % ("", os.devnull, more)) as a:
        assert a.wait(60) != 0
        assert want in a.stderr()


def test_an_address_for_all_needs_a_secret(keys):
    config = (CONFIG % ("", os.devnull, "")).replace('live: {endpoint: "127.0.0.1:0"', 'live: {endpoint: "0.0.0.0:0"')
    with kiln_agent.Agent("--check", config=config) as a:
        assert a.wait(60) == 2
        assert "extensions.live.token_file or tls.client_ca_file is required" in a.stderr()
