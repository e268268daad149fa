-- Read rows. ARGV: 2... their names.
local names = {}
for index = 2, #ARGV do
  names[index - 1] = ARGV[index]
end
return {'ok', now, fields(KEYS[5], names), fields(KEYS[6], names), fields(KEYS[7], names)}
