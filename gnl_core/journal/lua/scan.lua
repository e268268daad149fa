-- Read one page. ARGV: 2 the prefix's own row, '' for none, 3 low, 4 high, 5 newer than, 6 '1' to descend,
-- 7 rows at most, 8 bytes that end the page, 9 '1' to read blobs.
local own, low, high = ARGV[2], ARGV[3], ARGV[4]
local newer, reverse = tonumber(ARGV[5]), ARGV[6] == '1'
local limit, most_bytes, blobs = tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9] == '1'
local rows, count, size, more = {}, 0, 0, false
local FEW = 2000 -- names that are sorted here rather than walked past

-- Add a row to the page; returns false when the page is full.
local function take(name, stamp)
  local version = stamp and string.match(stamp, '^%d+ %d+ (%d+) ')
  if version and tonumber(version) <= newer then
    return true
  end
  if count == limit or size >= most_bytes then
    more = true
    return false
  end
  local value = redis.call('HGET', KEYS[6], name)
  local blob = blobs and redis.call('HGET', KEYS[7], name)
  count = count + 1
  rows[#rows + 1] = name
  rows[#rows + 1] = stamp
  rows[#rows + 1] = value
  rows[#rows + 1] = blob
  size = size + (value and #value or 0) + (blob and #blob or 0)
  return true
end

local function take_own()
  if own == '' then
    return true
  end
  local stamp = redis.call('HGET', KEYS[5], own)
  return not stamp or take(own, stamp)
end

-- Compare by bytes: Lua's own '<' follows the server's locale.
local function before(left, right)
  local length = math.min(#left, #right)
  for at = 1, length do
    local one, other = string.byte(left, at), string.byte(right, at)
    if one ~= other then
      return one < other
    end
  end
  return #left < #right
end

local function take_listed(names)
  local inside = {}
  for _, name in ipairs(names) do
    if not before(name, low) and before(name, high) then
      inside[#inside + 1] = name
    end
  end
  table.sort(inside, reverse and function(a, b) return before(b, a) end or before)
  local stamps = fields(KEYS[5], inside)
  for index, name in ipairs(inside) do
    if not take(name, stamps[index]) then
      return false
    end
  end
  return true
end

local function walk()
  local chunk = math.min(limit + 1, 500)
  local command, from, to = 'ZRANGEBYLEX', '[' .. low, '(' .. high
  if reverse then
    command, from, to = 'ZREVRANGEBYLEX', to, from
  end
  while true do
    local names = redis.call(command, KEYS[3], from, to, 'LIMIT', 0, chunk)
    local stamps = fields(KEYS[5], names)
    for index, name in ipairs(names) do
      if not take(name, stamps[index]) then
        return false
      end
    end
    if #names < chunk then
      return true
    end
    from = '(' .. names[#names]
  end
end

-- Few new rows among many: find them by version. Else pass over the old ones.
local function take_below()
  if newer > 0 then
    local fresh = redis.call('ZCOUNT', KEYS[4], '(' .. ARGV[5], '+inf')
    local below = redis.call('ZLEXCOUNT', KEYS[3], '[' .. low, '(' .. high)
    if fresh < below and (fresh <= FEW or fresh * 16 < below) then
      return take_listed(redis.call('ZRANGEBYSCORE', KEYS[4], '(' .. ARGV[5], '+inf'))
    end
  end
  return walk()
end

if reverse then
  if take_below() then
    take_own()
  end
elseif take_own() then
  take_below()
end
return {'ok', now, more and 1 or 0, rows}
