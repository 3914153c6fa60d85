# SPDX-License-Identifier: Apache-2.0
# The agent's image. From the root of the tree:
#   docker build -f deploy/agent.Dockerfile -t kiln-agent:0.1.0 .
# It wants the host's process ids (--pid host), and root with the capabilities that docs/operator.md lists.
FROM debian:12-slim AS build
WORKDIR /src
# First what changes seldom: the packages stay cached while sources change.
COPY hack/lib hack/lib
RUN apt-get update && hack/lib/install.sh build
COPY . .
RUN cmake --preset release -DKILN_BENCH=OFF && cmake --build build/release --target kiln-agent && \
    strip -o /kiln-agent build/release/bin/kiln-agent

FROM debian:12-slim
# libwebsockets loads its libuv plugin by name, so that no tool finds it missing but the program.
RUN apt-get update && \
    apt-get install -y --no-install-recommends \
        ca-certificates libbpf1 libcjson1 libcurl4 libdeflate0 libjemalloc2 liblzma5 libnghttp2-14 libprotobuf-c1 \
        libssl3 libuv1 libwebsockets17 libwebsockets-evlib-uv libyaml-0-2 libzstd1 libzydis4.0 \
        zlib1g && \
    rm -rf /var/lib/apt/lists/*
COPY --from=build /kiln-agent /usr/local/bin/kiln-agent
# 13133 health and metrics
EXPOSE 13133
ENTRYPOINT ["/usr/local/bin/kiln-agent"]
