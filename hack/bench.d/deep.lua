-- SPDX-License-Identifier: Apache-2.0
-- Spins at the end of a chain of DEPTH calls. Every 20 ms it returns and calls again.
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
