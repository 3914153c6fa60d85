# SPDX-License-Identifier: Apache-2.0
"""The operator as an agent sees it: a real gRPC server with TLS that speaks proto/kiln/node/v1/node.proto and
sends the state that a test sets."""
import concurrent.futures
import os
import pathlib
import queue
import subprocess
import threading
import uuid

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from parts import ROOT, wait_until

_PROTO = "kiln/node/v1/node.proto"
CHUNK = 100  # most policies or pods in one message of the snapshot


def _messages(directory):
    out = pathlib.Path(directory) / "node.pb"
    subprocess.run(["protoc", f"--proto_path={ROOT}/proto", f"--descriptor_set_out={out}", _PROTO], check=True)
    files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for f in files.file:
        pool.Add(f)
    return message_factory.GetMessages(files.file, pool=pool) if hasattr(message_factory, "GetMessages") else {
        f"kiln.node.v1.{m.name}": message_factory.GetMessageClass(pool.FindMessageTypeByName(f"kiln.node.v1.{m.name}"))
        for m in files.file[0].message_type}


class Pod:
    """A pod with one container, whose cgroup is `path`."""

    def __init__(self, number, policy, name=None, container=True, attributes=None):
        self.uid = str(uuid.uuid4())
        self.container_id = uuid.uuid4().hex * 2
        self.name = name or f"pod-{number}"
        self.policy, self.container = policy, container
        self.attributes = attributes or {}

    @property
    def path(self):
        return f"/kiln-test-{os.getpid()}/kubepods/burstable/pod{self.uid}/{self.container_id}"


class Operator:
    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        m = _messages(directory)
        self.types = {k.rsplit(".", 1)[1]: v for k, v in m.items()}
        self.policies, self.pods, self.destinations, self.default = {}, {}, {}, None
        self.priorities, self.budget = {}, None  # {policy: priority}, (millionths of all CPUs, bytes)
        self.epoch, self.revision = 7, 1
        self.lock, self.sessions = threading.Lock(), []
        self.hellos, self.tokens, self.reports, self.acked = [], [], [], 0
        self.certificate, key = self.directory / "operator.crt", self.directory / "operator.key"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-days", "2", "-subj", "/CN=kiln-operator", "-addext", "subjectAltName=DNS:kiln-operator.kiln.svc",
                        "-keyout", key, "-out", self.certificate], check=True, capture_output=True)
        self.token = self.directory / "token"
        self.token.write_text("a-token")
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
        handler = grpc.stream_stream_rpc_method_handler(self._connect, self.types["AgentMessage"].FromString,
                                                        self.types["OperatorMessage"].SerializeToString)
        self.server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler("kiln.node.v1.NodeService", {"Connect": handler})])
        credentials = grpc.ssl_server_credentials([(key.read_bytes(), self.certificate.read_bytes())])
        self.port = self.server.add_secure_port("127.0.0.1:0", credentials)
        self.server.start()

    def close(self):
        self.server.stop(0).wait()

    def settings(self, more=""):
        """The map `operator` of the agent's configuration. MORE: further keys, as ", key: value"."""
        return (f'{{endpoint: "127.0.0.1:{self.port}", ca_file: {self.certificate}, token_file: {self.token},'
                f' server_name: kiln-operator.kiln.svc, snapshot_file: {self.directory}/pods.snapshot{more}}}')

    # ---- what it sends ------------------------------------------------------------------------------

    def _policy(self, policy_id):
        """The Policy message. self.policies[id]: (enabled, Hz) or (enabled, Hz, [Destination.id])."""
        enabled, hz, *where = self.policies[policy_id]
        return self.types["Policy"](id=policy_id, enabled=enabled, hz=hz, routed=bool(where),
                                    priority=self.priorities.get(policy_id, 0),
                                    destinations=where[0] if where else [])

    def _destination(self, name):
        """The Destination message. self.destinations[name]: {field of Destination: value}; headers and tls are maps."""
        fields = dict(self.destinations[name])
        headers = [self.types["Header"](name=k, value=v) for k, v in fields.pop("headers", {}).items()]
        tls = self.types["Tls"](**fields.pop("tls", {"mode": 2}))
        return self.types["Destination"](id=name, headers=headers, tls=tls, **fields)

    def _pod(self, pod):
        attribute = self.types["Attribute"]
        known = {"k8s.namespace.name": "shop", "k8s.pod.name": pod.name, "k8s.pod.uid": pod.uid,
                 "k8s.deployment.name": "orchard", "service.name": "orchard", **pod.attributes}
        message = self.types["Pod"](uid=pod.uid, namespace="shop", name=pod.name, policy=pod.policy,
                                    attributes=[attribute(key=k, value=v) for k, v in known.items()])
        if pod.container:
            message.containers.add(name="main", id=bytes.fromhex(pod.container_id), attributes=[
                attribute(key="k8s.container.name", value="main"),
                attribute(key="container.image.name", value="registry.example/orchard"),
                attribute(key="container.image.repo_digests", values=["registry.example/orchard@sha256:1"])])
        return message

    def _everything(self):
        """The snapshot as Update messages, split as the operator splits it: at most CHUNK policies or pods in each."""
        first = self.types["Update"](destinations=[self._destination(d) for d in self.destinations])
        if self.default:
            first.default_policy.CopyFrom(self.types["Policy"](id=99, enabled=self.default[0], hz=self.default[1]))
        if self.budget:
            first.budget.CopyFrom(self.types["Budget"](cpu=self.budget[0], memory=self.budget[1]))
        policies, pods = [self._policy(p) for p in self.policies], [self._pod(p) for p in self.pods.values()]
        yield first
        for at in range(0, len(policies), CHUNK):
            yield self.types["Update"](policies=policies[at:at + CHUNK])
        for at in range(0, len(pods), CHUNK):
            yield self.types["Update"](pods=pods[at:at + CHUNK])

    def _connect(self, requests, context):
        message = self.types["OperatorMessage"]
        self.tokens.append(dict(context.invocation_metadata()).get("authorization"))
        hello = next(requests)
        assert hello.WhichOneof("message") == "hello"
        self.hellos.append(hello.hello)
        mine = queue.Queue()
        with self.lock:
            first = [message(welcome=self.types["Welcome"](protocol=1, operator_version="test", node_name="n",
                                                           report_interval_s=1)),
                     message(snapshot_begin=self.types["SnapshotBegin"](epoch=self.epoch)),
                     *(message(update=u) for u in self._everything()),
                     message(snapshot_end=self.types["SnapshotEnd"](epoch=self.epoch, revision=self.revision))]
            self.sessions.append(mine)
        threading.Thread(target=self._listen, args=(requests, mine), daemon=True).start()
        yield from first
        while (item := mine.get()) is not None:
            yield item

    def _listen(self, requests, mine):
        try:
            for r in requests:
                if r.WhichOneof("message") == "ack":
                    self.acked = max(self.acked, r.ack.revision)
                elif r.WhichOneof("message") == "report":
                    self.reports.append(r.report)
        except grpc.RpcError:
            pass
        mine.put(None)

    # ---- what a test changes -------------------------------------------------------------------------

    def tell(self, policies=None, pods=(), default=None, deleted=(), destinations=None, forgotten=(), budget=None):
        """Changes the state and sends the change; waits for the acknowledgement if an agent is connected. FORGOTTEN: ids of
        policies (int) and of destinations (str) that are deleted."""
        with self.lock:
            self.policies.update(policies or {})
            self.destinations.update(destinations or {})
            for name in forgotten:
                self.policies.pop(name, None), self.destinations.pop(name, None)
            for p in pods:
                self.pods[p.uid] = p
            for uid in deleted:
                self.pods.pop(uid)
            self.default, self.budget = default or self.default, budget or self.budget
            self.revision += 1
            update = self.types["Update"](revision=self.revision, policies=[self._policy(p) for p in policies or {}],
                                          destinations=[self._destination(d) for d in destinations or {}],
                                          pods=[self._pod(p) for p in pods], deleted_pods=deleted,
                                          deleted_policies=[f for f in forgotten if isinstance(f, int)],
                                          deleted_destinations=[f for f in forgotten if isinstance(f, str)])
            if default:
                update.default_policy.CopyFrom(self.types["Policy"](id=100 + self.revision, enabled=default[0], hz=default[1]))
            if budget:
                update.budget.CopyFrom(self.types["Budget"](cpu=budget[0], memory=budget[1]))
            connected = bool(self.sessions)
            for s in self.sessions:
                s.put(self.types["OperatorMessage"](update=update))
        if connected:
            wait_until("the agent has the change", lambda: self.acked >= self.revision)

    def connected(self):
        wait_until("the agent has the state", lambda: self.acked >= self.revision)
