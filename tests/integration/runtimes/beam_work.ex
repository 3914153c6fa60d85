# SPDX-License-Identifier: Apache-2.0
# What beam_work.erl calls of Elixir.
defmodule Shop.Cart do
  def total(items) do
    sum = Enum.reduce(items, 0, fn x, acc -> # @elixir
      price = price!(x) # @elixir_fun
      price + acc
    end)
    sum + 1
  end

  def price!(x) do
    price = spin(100, x) # @elixir_price
    price + 1
  end

  defp spin(0, a), do: a
  defp spin(n, a), do: spin(n - 1, rem(a * 7 + n, 1000003))
end
