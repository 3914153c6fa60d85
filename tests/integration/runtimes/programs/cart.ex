# SPDX-License-Identifier: Apache-2.0
# One of the modules that mix compiles; NUMBER is put in. For test_real_programs.py.
defmodule Shop.CartNUMBER do
  @moduledoc "A cart."
  defstruct items: [], owner: nil, discount: 0

  @prices for n <- 1..50, into: %{}, do: {:"item_#{n}", rem(n * NUMBER, 97)}

  for {name, price} <- @prices do
    def price(unquote(name)), do: unquote(price)
  end

  def price(_), do: {:error, :unknown}

  def add(%__MODULE__{items: items} = cart, item) when is_atom(item), do: %{cart | items: [item | items]}

  def total(%__MODULE__{items: items, discount: discount}) do
    items
    |> Enum.map(&price/1)
    |> Enum.reject(&match?({:error, _}, &1))
    |> Enum.reduce(0, fn price, sum -> sum + price end)
    |> Kernel.-(discount)
    |> max(0)
  end

  def describe(%__MODULE__{} = cart) do
    with [first | _] <- cart.items,
         price when is_integer(price) <- price(first) do
      "#{inspect(first)} and #{length(cart.items) - 1} more for #{total(cart)} of #{cart.owner || "nobody"}"
    else
      [] -> "empty"
      {:error, reason} -> "not to be had: #{reason}"
    end
  end

  defimpl String.Chars do
    def to_string(cart), do: Shop.CartNUMBER.describe(cart)
  end
end
