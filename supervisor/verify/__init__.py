"""Does a history keep the promises? Pure checks over what was recorded, by whoever recorded it.

`recorded.check` judges a directory written by a test, `live.check` a database that is in use. Nothing here
shares code with what it judges: the moves are replayed, the instants of a schedule are counted minute by
minute, and an order is looked for in the calls of the replicas.
"""
