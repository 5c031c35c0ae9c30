-- The environment of scripts, and the function that runs them. The arguments are functions in Rust.
local run, may_run, sha1hex, origin = ...
local error, rawset, tostring, type, xpcall = error, rawset, tostring, type, xpcall
local sub, find = string.sub, string.find
local globals = _G

redis = {
    LOG_DEBUG = 0,
    LOG_VERBOSE = 1,
    LOG_NOTICE = 2,
    LOG_WARNING = 3,
    sha1hex = sha1hex,
}

-- A tail call such as `return redis.call(...)` of this Lua function hides its caller, so that the line of an
-- error is -1.
function redis.call(...)
    local failed, reply = run(...)
    if failed then
        error(reply)
    end
    return reply
end

function redis.pcall(...)
    local _, reply = run(...)
    return reply
end

function redis.acl_check_cmd(...)
    local failed, may = may_run(...)
    if failed then
        error(may)
    end
    return may
end

-- Adds a default code to a text without one.
function redis.error_reply(text)
    if type(text) ~= 'string' then
        return { err = 'ERR wrong number or type of arguments' }
    end
    text = sub(text, 1, 1) == '-' and sub(text, 2) or text
    return { err = find(text, ' ', 1, true) and text or 'ERR ' .. text }
end

function redis.status_reply(text)
    if type(text) ~= 'string' then
        return { err = 'ERR wrong number or type of arguments' }
    end
    return { ok = text }
end

function redis.replicate_commands()
    return true
end

function redis.log() end

-- Adds source and line to an error. A server recognizes its own functions as C functions.
local function located(err)
    local level = 2
    local source, line, what = origin(level)
    if what == 'C' then
        level = 3
        source, line, what = origin(level)
    end
    if source == '@redis' then
        source, line = origin(level + 1)
    end
    if type(err) ~= 'table' then
        err = { err = 'ERR ' .. tostring(err) }
    end
    if source then
        err.source, err.line = source, line
    end
    return err
end

-- Random numbers, files and environments, which the lock's scripts do not use.
for _, name in ipairs({ 'dofile', 'getfenv', 'loadfile', 'newproxy', 'print', 'setfenv', 'collectgarbage' }) do
    globals[name] = nil
end
math.random, math.randomseed = nil, nil
KEYS, ARGV = {}, {}

setmetatable(globals, {
    __index = function(_, name)
        error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
    end,
    __newindex = function()
        error('Attempt to modify a readonly table', 2)
    end,
})

return function(script, keys, argv)
    rawset(globals, 'KEYS', keys)
    rawset(globals, 'ARGV', argv)
    return xpcall(script, located)
end
