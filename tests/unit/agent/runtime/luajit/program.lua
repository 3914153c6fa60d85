-- SPDX-License-Identifier: Apache-2.0
-- What test_recorded.c has stacks of.
local Cart = {}
Cart.__index = Cart

local function leaf(n)
	local t = 0
	for i = 1, n do
		t = t + i * i % 7
	end
	return t
end

function Cart:total()
	local n = leaf(20000000)
	return n + 1
end

local function recurse(n, ...)
	if n == 0 then
		local ok, sum = pcall(Cart.total, setmetatable({}, Cart))
		return ok and sum, ...
	end
	return 1 + recurse(n - 1, n), 1
end

function global(s)
	local sum = s:gsub("x", function()
		return tostring(recurse(3))
	end)
	return sum
end

while true do
	local co = coroutine.wrap(function()
		return global("x") .. "."
	end)
	co()
end
