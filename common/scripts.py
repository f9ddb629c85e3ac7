"""The Lua that runs inside Redis, where several keys must change together. Called by common/transport.py alone."""

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
return {entry_ids, backlog + accepted, word}
"""
)
"""One call a tick: the atomic hard cap, the backlog, and the epoch. KEYS: requests, epoch; ARGV: a new word, the cap, and
the encoded requests."""

JOIN = (
    _MAKE_ANEW
    + """
local made = redis.pcall('XGROUP', 'CREATE', KEYS[1], 'workers', '0')
if made.err and not string.find(made.err, 'BUSYGROUP') then return made end
return redis.call('XGROUP', 'CREATECONSUMER', KEYS[1], 'workers', ARGV[2])
"""
)
"""Makes sure of stream, group (somebody may have destroyed it alone) and consumer. ARGV: a new word, the consumer."""
