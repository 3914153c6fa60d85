-- SPDX-License-Identifier: Apache-2.0
-- Computes at the end of DEPTH calls, for ever; every 20 ms it goes up and down again.
-- usage: deep.lua DEPTH
local function leaf(finish)
	local x = 0
	repeat
		for i = 1, 20000 do
			x = (x * 7 + i) % 1000003
		end
	until os.clock() > finish
	return x
end

local function down(n, finish)
	if n == 0 then
		return leaf(finish)
	end
	return down(n - 1, finish) + 1
end

while true do
	down(tonumber(arg[1]), os.clock() + 0.02)
end
