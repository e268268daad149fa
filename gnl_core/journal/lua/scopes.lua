-- List organisations that have rows. ARGV: 2 where to begin, in ZRANGEBYLEX's words, 3 how many.
return {'ok', now, redis.call('ZRANGEBYLEX', KEYS[2], ARGV[2], '+', 'LIMIT', 0, ARGV[3])}
