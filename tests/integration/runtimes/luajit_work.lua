-- SPDX-License-Identifier: Apache-2.0
--
-- A program with known call chains, for LuaJIT 2.1. Says its chains as JSON, works until it is killed.
--
-- Each chain is a list of [function, lines, file], leaf first; a name alone is a function of C, and "|" stands for
-- native frames between two groups of Lua frames. A line has the comment "at NAME" in the source; NAME is the chain's,
-- or what comes after a slash tells two apart.
--
-- usage: luajit luajit_work.lua PID [CHAIN...]
local ffi = require("ffi")
local HERE = debug.getinfo(1, "S").source:sub(2)
local SLICE = 0.1 -- seconds of CPU time for each chain: what is between two is nothing against it
local clock = os.clock

-- The leaf: runs for a while.
function work()
	local total = 0
	local till = clock() + SLICE
	while clock() < till do -- at work
		for i = 1, 2000 do -- at work
			total = total + i * i % 7 -- at work
		end -- at work
	end -- at work
	return total -- at work
end

local chains = {}
local program = {}

-- ---- recursion

local function recurse(n)
	if n == 0 then
		return (work()) -- at recurse/end
	end
	return 1 + recurse(n - 1) -- at recurse/deeper
end

function program.recursion() return 1 + recurse(12) end -- at recursion
function program.deep() return 1 + recurse(400) end -- at deep

local function deeper(n)
	local chain = {{"recurse", "recurse/end"}}
	for _ = 1, n do table.insert(chain, {"recurse", "recurse/deeper"}) end
	return chain
end
chains.recursion = deeper(12)
chains.deep = deeper(400)

-- ---- methods, fields, closures

local Item = {}
Item.__index = Item
function Item.new(n) return setmetatable({n = n}, Item) end
function Item:price() return 1 + work() end -- at Item:price

local Cart = setmetatable({}, Item)
Cart.__index = Cart
function Cart:total() return 1 + self:price() end -- at Cart:total

function program.methods() return 1 + setmetatable({}, Cart):total() end -- at methods
chains.methods = {{"price", "Item:price"}, {"total", "Cart:total"}}

function program.closures() -- at closures/start
	local n = 1
	local inner = function() n = n + 1; return 1 + work() end -- at closures/inner
	return 1 + inner() -- at closures
end
chains.closures = {{"inner", "closures/inner"}}

-- ---- calls of C functions, and by them

function program.protected()
	local ok = pcall(function() -- at protected/start
		local _ = 1 + work() -- at protected/inner
	end)
	return ok, 1 -- at -
end
chains.protected = {{"<protected/start>", "protected/inner"}, "pcall", {"protected", "protected/start"}}

local function handler(e)
	local _ = 1 + work() -- at handler
	return e
end
local function fails() error("no") end -- at fails
function program.handled() -- at -
	local ok = xpcall(fails, handler) -- at handled
	return ok, 1
end
chains.handled = {{"<handler/start>", "handler"}, "|", "error", {"<fails>", "fails"}, "xpcall", {"handled", "handled"}}

function program.sorted()
	local done = false
	table.sort({2, 1}, function(a, b) -- at sorted/start
		if not done then
			done = true
			local _ = 1 + work() -- at sorted/inner
		end
		return a < b
	end) -- at sorted
	return 1
end
chains.sorted = {{"<sorted/start>", "sorted/inner"}, "|", "sort", {"sorted", "sorted/start"}}

function program.replaced()
	local s = ("a"):gsub("a", function(c) -- at replaced/start
		local _ = 1 + work() -- at replaced/inner
		return c
	end)
	return s, 1
end
chains.replaced = {{"<replaced/start>", "replaced/inner"}, "|", "gsub", {"replaced", "replaced/start"}}

-- ---- metamethods and iterators

local Number = {}
Number.__add = function(a) return work() and a end -- at Number.__add
Number.__index = function() return 1 + work() end -- at Number.__index
Number.__call = function() return 1 + work() end -- at Number.__call
Number.__tostring = function() return (work()) and "n" end -- at Number.__tostring
Number.__lt = function() return (work()) == 1 end -- at Number.__lt
Number.__concat = function() return (work()) .. "" end -- at Number.__concat
local number = setmetatable({}, Number)

function program.adds() local n = number + 1; return n end -- at adds
chains.adds = {{"__add", "Number.__add"}}
function program.indexes() local n = number.foo; return n end -- at indexes
chains.indexes = {{"__index", "Number.__index"}}
function program.calls() return 1 + number() end -- at calls
chains.calls = {{"number", "Number.__call"}}
function program.prints() return (tostring(number)) .. "" end -- at prints
chains.prints = {{"tostring", "Number.__tostring"}} -- tostring() calls it in its place
function program.less() local r = number < number; return r end -- at less
chains.less = {{"__lt", "Number.__lt"}}
function program.joins() local r = "a" .. number; return r end -- at joins
chains.joins = {{"__concat", "Number.__concat"}}

local function each(_, i) -- at each/start
	if i == 0 then
		local _ = 1 + work() -- at each
		return 1
	end
end
function program.iterates()
	for _ in each, nil, 0 do -- at iterates/in
		SINK = 1 -- at -
	end -- at iterates
end
chains.iterates = {{"each", "each"}, {"iterates", "iterates/both"}}

-- ---- varargs and tail calls

local function variable(...) -- at -
	local n = select("#", ...)
	return n + work(), 1 -- at variable
end
function program.varargs() return 1 + variable(1, 2, 3) end -- at varargs
chains.varargs = {{"variable", "variable"}}

local function tail() return 1 + work() end -- at tail
local function calls_tail() return tail() end -- at -
function program.tails() return 1 + calls_tail() end -- at tails
chains.tails = {{"calls_tail", "tail"}}

local function vararg_tail(...) return tail(...) end -- at -
function program.vararg_tails() return 1 + vararg_tail(1, 2) end -- at vararg_tails
chains.vararg_tails = {{"vararg_tail", "tail"}}

-- ---- coroutines

function program.resumes()
	local co = coroutine.create(function(n) -- at resumes/start
		coroutine.yield()
		return n + work() -- at resumes/inner
	end)
	coroutine.resume(co, 1)
	local ok = coroutine.resume(co) -- at resumes
	return ok, 1
end
chains.resumes = {{"<resumes/start>", "resumes/inner"}, "|", "resume", {"resumes", "resumes"}}

function program.wraps()
	local outer = coroutine.wrap(function() -- at wraps/outer-start
		local inner = coroutine.wrap(function() -- at wraps/inner-start
			local _ = 1 + recurse(3) -- at wraps/inner
			return 1
		end)
		return 1 + inner() -- at wraps/outer
	end)
	return 1 + outer() -- at wraps
end
chains.wraps = {{"recurse", "recurse/end"}, {"recurse", "recurse/deeper"}, {"recurse", "recurse/deeper"},
	{"recurse", "recurse/deeper"}, {"<wraps/inner-start>", "wraps/inner"}, "|", "inner",
	{"<wraps/outer-start>", "wraps/outer"}, "|", "outer", {"wraps", "wraps"}}

-- ---- FFI

ffi.cdef [[ void qsort(void *base, size_t n, size_t size, int (*compare)(const void *, const void *)); ]]
local busy
local compare = ffi.cast("int (*)(const void *, const void *)", function() -- at ffi_callback/start short_ffi/inner
	if not busy then -- at short_ffi/inner
		busy = true
		local _ = 1 + work() -- at ffi_callback/inner
	end
	return 0 -- at short_ffi/inner
end)
local numbers = ffi.new("int[2]", 2, 1)
local function call_qsort(short) -- at short_ffi/out
	busy = short -- at short_ffi/out
	ffi.C.qsort(numbers, 2, 4, compare) -- at ffi_callback/qsort short_ffi/out
	return 1 -- at short_ffi/out
end
jit.off(call_qsort)
function program.ffi_callback() return 1 + call_qsort() end -- at ffi_callback
chains.ffi_callback = {{"<ffi_callback/start>", "ffi_callback/inner"}, "|", "qsort", {"call_qsort", "ffi_callback/qsort"},
	{"ffi_callback", "ffi_callback"}}

-- ---- other leaves: where C code works for Lua

function program.strings() -- at -
	local till = clock() + SLICE -- at strings
	local n = 0 -- at strings
	while clock() < till do -- at strings
		for i = 1, 200 do -- at strings
			n = n + #(i .. "x" .. n) -- at strings
		end -- at strings
	end -- at strings
	return n -- at strings
end
chains.strings = {{"*"}, {"strings", "strings"}}

function program.tables() -- at -
	local till = clock() + SLICE -- at tables
	local t -- at tables
	while clock() < till do -- at tables
		for i = 1, 200 do -- at tables
			t = {i, {t and 1, i}, x = i} -- at tables
		end -- at tables
	end -- at tables
	return t -- at tables
end
chains.tables = {{"*"}, {"tables", "tables"}}

local long = ("x"):rep(1500)
function program.finds() -- at -
	local till = clock() + SLICE -- at finds
	while clock() < till do -- at finds
		string.find(long, "(x+)y") -- at finds
	end -- at finds
end
chains.finds = {{"*"}, {"finds", "finds"}}

-- ---- short calls: mostly on their way in or out. BUSY/NAME is one more chain of program.BUSY.

local function busy(name, names, step)
	program[name] = function() -- at busy/start
		local till = clock() + SLICE -- at busy
		while clock() < till do -- at busy
			for i = 1, 100 do -- at busy
				step(i) -- at busy
			end -- at busy
		end -- at busy
	end -- at busy
	chains[name] = {{"*"}, {name, "busy"}}
	chains[name .. "/step"] = {{"*"}, {"step", name}, {name, "busy"}}
	for i = 1, #names do
		local chain = {{"*"}}
		for k = i, #names do table.insert(chain, names[k]) end
		table.insert(chain, {"step", name})
		table.insert(chain, {name, "busy"})
		chains[name .. "/" .. i] = chain
	end
end

local function add(a, b) -- at add
	return a + b -- at add
end -- at add
local function twice(a) -- at twice
	local n = add(a, a) -- at twice
	return n + 1 -- at twice
end -- at twice
busy("short_calls", {{"add", "add"}, {"twice", "twice"}}, function(i) -- at short_calls
	local n = twice(i) -- at short_calls
	return n + add(i, 1) * 2 -- at short_calls
end) -- at short_calls
chains["short_calls/add"] = {{"*"}, {"add", "add"}, {"step", "short_calls"}, {"short_calls", "busy"}}

local function count(n) -- at count
	if n == 0 then return 0 end -- at count
	return 1 + count(n - 1) -- at count
end -- at count
local counts = {}
for _ = 1, 6 do table.insert(counts, {"count", "count"}) end
busy("short_recursion", counts, function() -- at short_recursion
	local n = count(5) -- at short_recursion
	return n -- at short_recursion
end) -- at short_recursion

local thing = setmetatable({n = 0}, {__index = {
	grow = function(self, by) -- at grow
		self.n = self.n + by -- at grow
		return self -- at grow
	end -- at grow
}})
busy("short_methods", {{"grow", "grow"}}, function() -- at short_methods
	local t = thing:grow(1):grow(2) -- at short_methods
	return t.n -- at short_methods
end) -- at short_methods

busy("short_pcalls", {{"<add>", "add"}, "pcall"}, function(i) -- at short_pcalls
	local _, n = pcall(add, i, 1) -- at short_pcalls
	return n -- at short_pcalls
end) -- at short_pcalls

local generator = coroutine.wrap(function() -- at short_switches/start
	local n = 0
	while true do -- at short_switches/inner
		n = n + 1 -- at short_switches/inner
		coroutine.yield(n) -- at short_switches/inner
	end -- at short_switches/inner
end)
busy("short_switches", {{"<short_switches/start>", "short_switches/inner"}, "|", "generator"}, function() -- at short_switches
	local n = generator() -- at short_switches
	return n -- at short_switches
end) -- at short_switches
chains["short_switches/back"] = {{"*"}, {"<short_switches/start>", "short_switches/inner"}, "generator",
	{"step", "short_switches"}, {"short_switches", "busy"}}

local function sum(...) -- at sum
	local a, b = ... -- at sum
	return a + b + select("#", ...) -- at sum
end -- at sum
local function passes(...) -- at passes
	return sum(...) -- at passes
end -- at passes
busy("short_varargs", {{"passes", "sum"}}, function(i) -- at short_varargs
	local n = passes(i, 2) -- at short_varargs
	return n -- at short_varargs
end) -- at short_varargs
chains["short_varargs/passes"] = {{"*"}, {"passes", "passes"}, {"step", "short_varargs"}, {"short_varargs", "busy"}}

local Point = {}
Point.__add = function(a) -- at Point.__add
	return a -- at Point.__add
end -- at Point.__add
Point.__index = function(_, k) -- at Point.__index
	return k -- at Point.__index
end -- at Point.__index
Point.__newindex = function(t, k, v) -- at Point.__newindex
	rawset(t, k, nil) -- at Point.__newindex
	return v -- at Point.__newindex
end -- at Point.__newindex
local point = setmetatable({}, Point)
busy("short_metamethods", {{"__add", "Point.__add"}}, function(i) -- at short_metamethods
	local n = point + i -- at short_metamethods
	point.x = i -- at short_metamethods
	return n.x -- at short_metamethods
end) -- at short_metamethods
for _, name in ipairs({"__index", "__newindex"}) do
	chains["short_metamethods/" .. name] = {{"*"}, {name, "Point." .. name}, {"step", "short_metamethods"},
		{"short_metamethods", "busy"}}
end

busy("short_library", {}, function(i) -- at short_library
	local s = string.format("%d %s", i, "x"):upper():sub(1, 3) -- at short_library
	local t = {s, #s, math.floor(i / 3), s:byte(1)} -- at short_library
	table.insert(t, tostring(i)) -- at short_library
	return table.concat(t, ",") -- at short_library
end) -- at short_library

busy("short_callbacks", {{"<short_callbacks/start>", "short_callbacks/inner"}, "|", "gsub"}, function() -- at short_callbacks
	local s = ("abc"):gsub(".", function(c) -- at short_callbacks/start short_callbacks short_callbacks/inner
		return c -- at short_callbacks/inner
	end) -- at short_callbacks short_callbacks/inner
	return s -- at short_callbacks
end) -- at short_callbacks

busy("short_ffi", {{"<ffi_callback/start>", "short_ffi/inner"}, "|", "qsort", {"call_qsort", "ffi_callback/qsort"}}, function() -- at short_ffi
	call_qsort(true) -- at short_ffi
end) -- at short_ffi
chains["short_ffi/out"] = {{"*"}, {"call_qsort", "short_ffi/out"}, {"step", "short_ffi"}, {"short_ffi", "busy"}}

busy("short_exits", {}, function(i) -- at short_exits
	local x = i % 3 == 0 and tostring(i) or i -- at short_exits
	if type(x) == "string" then x = #x end -- at short_exits
	if i % 7 == 0 then x = {x} end -- at short_exits
	local f = i % 11 == 0 and function() return x end -- at short_exits
	return f or x -- at short_exits
end) -- at short_exits

-- ---- chunks

local chunk = loadstring("local work = ...\nlocal n = 1 + work()\nreturn n", "=chunk")
function program.loaded() return 1 + chunk(work) end -- at loaded
chains.loaded = {{"main chunk", 2, "chunk"}}

local code = loadstring("local n = 1 + work()\nreturn n")
function program.evaluated() return 1 + code() end -- at evaluated
chains.evaluated = {{"main chunk", 1, '[string "local n = 1 + work()"]'}}

-- ---- what it says

local function lines()
	local found, n = {}, 0
	for line in io.lines(HERE) do
		n = n + 1
		for name in (line:match("%-%- at (.*)") or ""):gmatch("%S+") do
			found[name] = found[name] or {}
			table.insert(found[name], n)
		end
	end
	found["iterates/both"] = {found["iterates/in"][1], found["iterates"][1]}
	found["handler/start"] = {found.handler[1] - 1}
	return found
end

local function quote(s) return '"' .. tostring(s):gsub('["\\]', "\\%0") .. '"' end
local function json(v)
	if type(v) == "number" then return tostring(v) end
	if type(v) ~= "table" then return quote(v) end
	local out = {}
	for _, one in ipairs(v) do table.insert(out, json(one)) end
	return "[" .. table.concat(out, ",") .. "]"
end

local function describe(at, name)
	local base = HERE:match("[^/]*$")
	local leaf = chains[name][1]
	local own = type(leaf) == "table" and leaf[1] == "*"
	local out = own and {{"*"}} or {{"work", at.work, HERE}}
	local function add(frame)
		if type(frame) == "string" then return table.insert(out, frame) end
		local where = type(frame[2]) == "number" and {frame[2]} or at[frame[2]] or error("no line of " .. frame[2])
		local shown = frame[1]:gsub("^<(.*)>$", function(start) return ("function <%s:%d>"):format(base, at[start][1]) end)
		table.insert(out, {shown, where, frame[3] or HERE})
	end
	for i, frame in ipairs(chains[name]) do
		if i > 1 or not own then add(frame) end
	end
	local last = out[#out]
	if not own and not (type(last) == "table" and last[1] == name) then add({name, name}) end
	out[#out][1] = "one" -- what run() calls it
	add({"run", "run"})
	add({"main chunk", "main"})
	add("|")
	add("[C]") -- pmain() of luajit.c
	return out
end

local function run(names)
	while true do
		for _, name in ipairs(names) do
			local one = program[name]
			one() -- at run
		end
	end
end
jit.off(run)

-- All chains but the short ones, or the short ones only, or those that are named.
local names, at, short = {select(2, ...)}, lines(), select(2, ...) == "short"
if #names == 0 or short then
	names = {}
	for name in pairs(program) do
		if not name:find("^short_") == not short then table.insert(names, name) end
	end
	table.sort(names)
end
local said, wanted = {}, {}
for _, name in ipairs(names) do wanted[name] = true end
for name in pairs(chains) do
	if wanted[name:match("^[^/]*")] then table.insert(said, json(describe(at, name))) end
end
io.write(('{"pid":%d,"file":%s,"version":%s,"jit":%s,"chains":[%s]}\n'):format((...), json(HERE), json(jit.version), tostring((jit.status())),
	table.concat(said, ",")))
io.flush()
run(names) -- at main
