"""The traffic suite: conversations in which work is asked for twice, played through the real engine.

Rooms: `tools` (five tools and the ledger of what they did), `settings` (which rungs are on), `player` (a conversation,
turn by turn), `played` (what was recorded), `suite` (all of them with scripted models), `live` (with a model behind a
server), `score` and `table` (what it came to).
"""
