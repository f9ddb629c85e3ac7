"""The Lua that runs inside Redis, where several keys must change together: the queue's and the rate limit's."""

_MAKE_ANEW = """
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('XGROUP', 'CREATE', KEYS[1], 'workers', '0', 'MKSTREAM')
  redis.call('DEL', KEYS[2])
end
local word = redis.call('SET', KEYS[2], ARGV[1], 'NX', 'GET') or ARGV[1]
"""
"""Whoever finds no stream makes it, and a new epoch with it. The SET is also the proof that the server takes writes."""

PUT = (
    _MAKE_ANEW
    + """
local backlog = redis.call('XLEN', KEYS[1])
local accepted = math.max(0, math.min(#ARGV - 2, tonumber(ARGV[2]) - backlog))
local entry_ids = {}
for i = 1, accepted do entry_ids[i] = redis.call('XADD', KEYS[1], '*', 'r', ARGV[2 + i]) end
local oldest_ms, oldest = 0, #ARGV == 2 and redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
if oldest then
  local now = redis.call('TIME')
  oldest_ms = math.max(0, now[1] * 1000 + math.floor(now[2] / 1000) - string.match(oldest[1], '^%d+'))
end
return {entry_ids, backlog + accepted, word, oldest_ms}
"""
)
"""One call a tick: the atomic hard cap, the backlog, and the epoch. KEYS: requests, epoch; ARGV: a new word, the cap, and
the encoded requests. Without any it also tells how long the first request has been there, in ms."""

JOIN = (
    _MAKE_ANEW
    + """
local made = redis.pcall('XGROUP', 'CREATE', KEYS[1], 'workers', '0')
if made.err and not string.find(made.err, 'BUSYGROUP') then return made end
return redis.call('XGROUP', 'CREATECONSUMER', KEYS[1], 'workers', ARGV[2])
"""
)
"""Makes sure of stream, group (somebody may have destroyed it alone) and consumer. ARGV: a new word, the consumer."""

CHARGE = """
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local quota, window = tonumber(ARGV[1]), tonumber(ARGV[2]) * 1000000
local told = {}
for i, key in ipairs(KEYS) do
  local texts = tonumber(ARGV[2 + i])
  local level, at = string.match(redis.call('GET', key) or '', '(%S+) (%S+)')
  level = level and math.max(0, level - math.max(0, now - at) * quota / window) or 0
  local granted = level + texts <= quota + 0.000001
  if granted then
    level = level + texts
    redis.call('SET', key, string.format('%.6f %.0f', level, now), 'PX', math.ceil(level * window / quota / 1000))
  end
  local until_then = granted and level or level + texts - quota
  told[i] = {granted and 1 or 0, math.floor(quota - level + 0.000001), math.ceil(until_then * window / quota / 1000)}
end
return told
"""
"""A bucket a caller, which leaks a quota a window and takes no more than a quota: one call for all that ask meanwhile. KEYS: a
bucket a question; ARGV: quota, window in seconds, then the texts of each question. Told of each: whether it was granted, how
many texts fit now, and milliseconds until what was refused fits, or until the bucket is empty again."""
