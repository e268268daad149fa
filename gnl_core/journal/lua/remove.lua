-- Delete the first rows of a prefix. ARGV: 2 organisation, 3 the prefix's own row, 4 low, 5 high, 6 rows at most.
local limit = tonumber(ARGV[6])
local names = {}
if redis.call('HEXISTS', KEYS[5], ARGV[3]) == 1 then
  names[1] = ARGV[3]
end
if #names < limit then
  for _, name in ipairs(redis.call('ZRANGEBYLEX', KEYS[3], '[' .. ARGV[4], '(' .. ARGV[5], 'LIMIT', 0, limit - #names)) do
    names[#names + 1] = name
  end
end
if #names == 0 then
  return {'ok', now, 0}
end
for key = 4, 7 do -- a key of another type is to fail here, before anything is written
  redis.call(key == 4 and 'ZCARD' or 'HLEN', KEYS[key])
end
redis.call('ZCARD', KEYS[2])
many('ZREM', KEYS[3], names)
many('ZREM', KEYS[4], names)
many('HDEL', KEYS[5], names)
many('HDEL', KEYS[6], names)
many('HDEL', KEYS[7], names)
if redis.call('ZCARD', KEYS[3]) == 0 then
  redis.call('ZREM', KEYS[2], ARGV[2])
end
return {'ok', now, #names}
