-- Check a batch's conditions in the order given, all before any write; then write all of it.
-- ARGV: 2 tag, 3 organisation, 4 '1' to write something even if the batch was written before, 5 how many steps.
-- Then each step: kind and name;
--   create, keep, replace, put: version asked ('' for none), value, '1' and blob or '0';
--   delete, expect: version asked, 'absent', 'present' or '' for none;
--   add: how many fields, then each: its name as JSON in UTF-8, the same in ASCII, the integer to add.
local tag, org, touch, count = ARGV[2], ARGV[3], ARGV[4] == '1', tonumber(ARGV[5])
local steps, names = {}, {}
local at = 6

local function next_argument()
  at = at + 1
  return ARGV[at - 1]
end

for index = 1, count do
  local step = {kind = next_argument(), name = next_argument()}
  if step.kind == 'add' then
    step.by = {}
    for field = 1, tonumber(next_argument()) do
      step.by[field] = {next_argument(), next_argument(), next_argument()}
    end
  else
    step.want = next_argument()
    if step.kind ~= 'delete' and step.kind ~= 'expect' then
      step.value = next_argument()
      if next_argument() == '1' then
        step.blob = next_argument()
      end
    end
  end
  steps[index], names[index] = step, step.name
end

-- What is there -------------------------------------------------------------------------------------------------------

local again = false -- version under which this very batch was written before
for index, stamp in ipairs(fields(KEYS[5], names)) do
  local step = steps[index]
  if stamp then
    local form, codec, version, batch, created = string.match(stamp, '^(%d+) (%d+) (%d+) (%d+) (%d+) %d+$')
    if not form then
      return {'corrupt', step.name}
    elseif form ~= '1' or codec ~= '0' then
      return {'newer', step.name, stamp}
    end
    step.stamp, step.version, step.batch, step.created = stamp, version, batch, created
    if step.kind ~= 'expect' and batch == tag then
      again = version
    end
  end
end

-- Counters ------------------------------------------------------------------------------------------------------------
-- Integers have any size, so they stay text: an object of integers, written without blanks by this library.

local MOST_DIGITS = 4300 -- and a sign: what Python reads back
local too_long = false

-- Add two integers of any length, digit by digit where a double would round.
local function sum(left, right)
  if #left <= 15 and #right <= 15 then
    return number(left + right)
  end
  local minus, other = string.sub(left, 1, 1) == '-', string.sub(right, 1, 1) == '-'
  left, right = string.gsub(left, '^-?0*', ''), string.gsub(right, '^-?0*', '')
  if #left < #right or (#left == #right and left < right) then -- digits alone: every locale orders them alike
    left, right, minus, other = right, left, other, minus
  end
  local sign = minus == other and 1 or -1
  local digits, carry = {}, 0
  for place = 1, #left do
    local digit = string.byte(left, -place) - 48 + carry
    if place <= #right then
      digit = digit + sign * (string.byte(right, -place) - 48)
    end
    carry = math.floor(digit / 10)
    digits[#left - place + 1] = string.char(48 + digit % 10)
  end
  local text = string.gsub((carry > 0 and '1' or '') .. table.concat(digits), '^0+', '')
  return text == '' and '0' or (minus and '-' or '') .. text
end

-- Read '{"name":1,"other":-2}' into names and integers as they are spelt; false where it is anything else.
local function counter(text)
  local found = {}
  if text == '{}' then
    return found
  end
  local place = 1
  while true do
    if string.sub(text, place, place) ~= (place == 1 and '{' or ',') or string.sub(text, place + 1, place + 1) ~= '"' then
      return false
    end
    local first = place + 1
    place = first + 1
    while true do -- to the name's closing quote
      local mark = string.find(text, '["\\]', place)
      if not mark then
        return false
      end
      place = mark + 1
      if string.sub(text, mark, mark) == '"' then
        break
      end
      place = place + 1
    end
    local name = string.sub(text, first, place - 1)
    local integer = string.match(text, '^:(-?%d+)', place)
    if not integer then
      return false
    end
    found[#found + 1] = {name, integer}
    place = place + 1 + #integer
    if place == #text and string.sub(text, place) == '}' then
      return found
    end
  end
end

-- Return the text of a counter after an addition; false where the row is none.
local function added(step)
  local text = step.stamp and redis.call('HGET', KEYS[6], step.name) or '{}'
  local found = text and counter(text)
  if not found or again then
    return found and text
  end
  for _, by in ipairs(step.by) do
    local old
    for _, member in ipairs(found) do
      if member[1] == by[1] or member[1] == by[2] then
        old = member
      end
    end
    if old then
      old[2] = sum(old[2], by[3])
      if #old[2] > MOST_DIGITS then
        too_long = step.name
      end
    else
      found[#found + 1] = {by[1], by[3]}
    end
  end
  local members = {}
  for index, member in ipairs(found) do
    members[index] = member[1] .. ':' .. member[2]
  end
  return '{' .. table.concat(members, ',') .. '}'
end

-- Conditions ----------------------------------------------------------------------------------------------------------

local function holds(step)
  if step.kind == 'create' or step.want == 'absent' then
    return not step.stamp
  elseif step.want == '' then
    return true
  end
  return step.stamp and (step.want == 'present' or step.want == step.version)
end

local kept, counters = {}, {}
for index, step in ipairs(steps) do
  local refused = false
  if step.kind == 'keep' then
    if step.stamp and step.batch ~= tag then
      step.kept = true
      kept[#kept + 1] = index - 1
    end
  elseif step.kind == 'add' then
    step.value = added(step)
    if too_long then
      return {'long', too_long}
    elseif step.value then
      counters[#counters + 1] = index - 1
      counters[#counters + 1] = step.value
    else
      refused = not again
    end
  else
    refused = not again and not holds(step)
  end
  if refused then
    local value = step.stamp and redis.call('HGET', KEYS[6], step.name)
    local blob = step.stamp and redis.call('HGET', KEYS[7], step.name)
    return {'refused', now, index - 1, step.stamp or false, value or false, blob or false}
  end
end

-- Writes --------------------------------------------------------------------------------------------------------------

if again then
  if touch then
    redis.call('HSET', KEYS[1], 'clock', number(now)) -- so that WAIT has a write to wait for
  end
  return {'applied', now, again, kept, counters}
end
local stamps, values, blobs, bare, born, gone = {}, {}, {}, {}, {}, {}
for _, step in ipairs(steps) do
  if step.kind == 'delete' then
    if step.stamp then
      gone[#gone + 1] = step.name
    end
  elseif step.kind ~= 'expect' and not step.kept then
    stamps[#stamps + 1] = step
    values[#values + 1] = step.name
    values[#values + 1] = step.value
    if not step.stamp then
      born[#born + 1] = '0'
      born[#born + 1] = step.name
    end
    if step.blob then
      blobs[#blobs + 1] = step.name
      blobs[#blobs + 1] = step.blob
    elseif step.stamp and step.kind ~= 'add' then
      bare[#bare + 1] = step.name
    end
  end
end
if #stamps == 0 and #gone == 0 then
  return {'applied', now, head[3], kept, counters}
end

-- Redis does not undo what a script wrote before an error. So whatever can fail fails here: keys of another type, and,
-- at the first write, a server that takes none.
local before = redis.call('ZCARD', KEYS[3])
redis.call('ZCARD', KEYS[2])
redis.call('ZCARD', KEYS[4])
redis.call('HLEN', KEYS[6])
redis.call('HLEN', KEYS[7])
local function remove()
  many('ZREM', KEYS[3], gone)
  many('ZREM', KEYS[4], gone)
  many('HDEL', KEYS[5], gone)
  many('HDEL', KEYS[6], gone)
  many('HDEL', KEYS[7], gone)
end
-- A server whose memory is full refuses what may need some, unless its script has written before. Deletes need none:
-- where there is nothing else, and the version is a number that cannot fail to grow, they go first.
local first = #stamps == 0 and string.match(head[3] or '', '^%d+$') and #head[3] < 16
if first then
  remove()
end
local version = number(redis.call('HINCRBY', KEYS[1], 'sequence', 1))
redis.call('HSET', KEYS[1], 'clock', number(now))
local lines, scores = {}, {}
for _, step in ipairs(stamps) do
  lines[#lines + 1] = step.name
  lines[#lines + 1] = table.concat({'1', '0', version, tag, step.created or number(now), number(now)}, ' ')
  scores[#scores + 1] = version
  scores[#scores + 1] = step.name
end
many('ZADD', KEYS[3], born)
many('ZADD', KEYS[4], scores)
many('HSET', KEYS[5], lines)
many('HSET', KEYS[6], values)
many('HSET', KEYS[7], blobs)
many('HDEL', KEYS[7], bare)
if not first then
  remove()
end
if redis.call('ZCARD', KEYS[3]) == 0 then
  redis.call('ZREM', KEYS[2], org)
elseif before == 0 then
  redis.call('ZADD', KEYS[2], 0, org)
end
return {'applied', now, version, kept, counters}
