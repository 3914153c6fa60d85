-- SPDX-License-Identifier: Apache-2.0
-- Neovim's settings as a user has them: options, key maps, commands, and what looks at all that it knows. For
-- test_real_programs.py.
vim.o.number = true
vim.o.expandtab = true
vim.g.mapleader = " "
for i = 1, 200 do
    vim.api.nvim_set_keymap("n", "<leader>" .. i, ":echo " .. i .. "<CR>", {noremap = true, silent = true})
end
vim.api.nvim_create_autocmd("BufRead", {pattern = "*.lua", callback = function() vim.bo.shiftwidth = 4 end})

local function described(name, value, depth)
    if type(value) ~= "table" or depth > 2 then return name .. ": " .. type(value) end
    local parts = {}
    for key, inner in pairs(value) do parts[#parts + 1] = described(tostring(key), inner, depth + 1) end
    table.sort(parts)
    return name .. " {" .. table.concat(parts, ", ") .. "}"
end

local text = {}
for name, value in pairs(vim) do text[#text + 1] = described(name, value, 0) end
for _ = 1, 20 do
    local words = vim.split(table.concat(text, "\n"), "[%s,{}]+")
    local unique = vim.tbl_keys(vim.fn.uniq(vim.fn.sort(words)))
    vim.inspect(vim.tbl_map(function(word) return {word} end, unique))
end
vim.deepcopy(vim.api.nvim_get_keymap("n"))
