#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Python that the tests use: one virtual environment, pinned, outside of the tree.
#   hack/lib/venv.sh          makes it when it is missing and prints the path of its python
set -euo pipefail

pins='grpcio==1.76.0
opentelemetry-proto==1.45.0
protobuf==6.33.0
pytest==9.0.0'
