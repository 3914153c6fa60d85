# SPDX-License-Identifier: Apache-2.0
# The operator's image. From the root of the tree:
#   docker build -f deploy/operator.Dockerfile -t kiln-operator:0.1.0 .
FROM debian:12-slim AS build
WORKDIR /src
# First what changes seldom: the packages stay cached while sources change.
COPY hack/lib hack/lib
RUN apt-get update && hack/lib/install.sh build
COPY . .
RUN cmake --preset release -DKILN_BENCH=OFF && cmake --build build/release --target kiln-operator && \
    strip -o /kiln-operator build/release/bin/kiln-operator

FROM debian:12-slim
# libwebsockets loads its libuv plugin by name, so that no tool finds it missing but the program.
RUN apt-get update && \
    apt-get install -y --no-install-recommends \
        ca-certificates libcjson1 libcurl4 libjemalloc2 libnghttp2-14 libprotobuf-c1 libssl3 libuv1 \
        libwebsockets17 libwebsockets-evlib-uv libyaml-0-2 && \
    rm -rf /var/lib/apt/lists/*
COPY --from=build /kiln-operator /usr/local/bin/kiln-operator
# A number, so that the kubelet can tell that it is not root.
USER 65532:65532
# 8080 metrics, 8081 health, 8443 agents
EXPOSE 8080 8081 8443
ENTRYPOINT ["/usr/local/bin/kiln-operator"]
