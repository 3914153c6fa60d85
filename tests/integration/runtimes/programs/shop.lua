-- SPDX-License-Identifier: Apache-2.0
-- A shop's cart as JSON and as a page, read and written anew for each request. For test_real_programs.py.
local json = require("cjson")
local shop = {}

local function items(n)
    local list = {}
    for i = 1, n do
        list[i] = {name = "item-" .. (i * 7919 % n), price = i * i % 97, tags = {"a" .. i % 5, "b" .. i % 3}}
    end
    return list
end

local function by_price(a, b)
    if a.price ~= b.price then return a.price < b.price end
    return a.name < b.name
end

local function escaped(text)
    return (text:gsub("[&<>]", {["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;"}))
end

local function total(list)
    local sum = 0
    for _, item in ipairs(list) do sum = sum + item.price end
    return sum
end

-- Yields one line of the page after the other.
local function lines(list)
    return coroutine.wrap(function()
        for i, item in ipairs(list) do
            coroutine.yield(("<li id=%d>%s: %d</li>"):format(i, escaped("<" .. item.name .. ">"), item.price))
        end
    end)
end

function shop.page()
    local list = json.decode(json.encode(items(200)))
    table.sort(list, by_price)
    local page = {"<ul>"}
    for line in lines(list) do page[#page + 1] = line end
    page[#page + 1] = ("</ul>%d"):format(total(list))
    local ok, why = pcall(error, {code = 404})
    if not ok then page[#page + 1] = tostring(why.code) end
    ngx.say(table.concat(page, "\n"))
end

return shop
