-- Stands before every other script. KEYS[1] is the store's own hash, ARGV[1] the store's id.
-- KEYS: 1 store, 2 scopes, 3 names, 4 versions, 5 stamps, 6 values, 7 blobs. All carry one hash tag.
-- A row is one field of three hashes: its stamp 'format codec version batch created updated', its value, its blob.

local MOST = 1000 -- arguments of one command: Lua's stack holds few thousand

local head = redis.call('HMGET', KEYS[1], 'store_id', 'clock', 'sequence')
if head[1] ~= ARGV[1] then
  return {'replaced', head[1]}
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if head[2] and tonumber(head[2]) > now then
  now = tonumber(head[2]) -- a server's clock that was set back must not make ages negative
end

local function number(value)
  return string.format('%.0f', value)
end

-- Call a command with any number of arguments, an even number at a time.
local function many(command, key, list)
  for first = 1, #list, MOST do
    redis.call(command, key, unpack(list, first, math.min(first + MOST - 1, #list)))
  end
end

-- Read the fields of a hash, in the order asked.
local function fields(key, names)
  if #names <= MOST then
    return #names > 0 and redis.call('HMGET', key, unpack(names)) or {}
  end
  local found = {}
  for first = 1, #names, MOST do
    local part = redis.call('HMGET', key, unpack(names, first, math.min(first + MOST - 1, #names)))
    for index = 1, #part do
      found[first + index - 1] = part[index]
    end
  end
  return found
end
