# SPDX-License-Identifier: Apache-2.0
"""What the integration tests share: run the agent and a workload, read what it wrote, compare."""
