-- What a script finds before it begins, and what runs it. The arguments are what Rust does for it.
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

-- (This is Lua, so if it is called last, as in `return redis.call(...)`, its caller is not known any more, and the line of an error is -1.)
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

-- A text without a code gets one.
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

-- Where an error comes from: as a server does, which knows its own functions by being in C.
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

-- A script's own random numbers, files and environments are nothing that a lock needs.
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
