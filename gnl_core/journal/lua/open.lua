-- Make the store if it is not there. KEYS: 1 store, 2 scopes. ARGV: 1 an id for a new one, 2 the schema's number.
local id, schema = unpack(redis.call('HMGET', KEYS[1], 'store_id', 'schema'))
if not id then
  if redis.call('ZCARD', KEYS[2]) > 0 then
    return {'corrupt', ''} -- rows without the sequence that numbers them: versions would be given twice
  end
  id, schema = ARGV[1], ARGV[2]
  redis.call('HSET', KEYS[1], 'store_id', id, 'schema', schema, 'sequence', '0', 'clock', '0')
end
return {'ok', id, schema}
