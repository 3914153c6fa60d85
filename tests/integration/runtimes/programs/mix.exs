# SPDX-License-Identifier: Apache-2.0
# 300 modules of one pattern, for Elixir's compiler. For test_real_programs.py, which makes them.
defmodule Shop.MixProject do
  use Mix.Project

  def project, do: [app: :shop, version: "0.1.0", elixir: "~> 1.12", deps: []]
  def application, do: []
end
