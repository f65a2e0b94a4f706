"""asyncio drivers: they own the clocks and the mutable state, and call pure code with `now`.

Belongs here: loops, the board of the current snapshot, reloading. Forbidden: protobuf, sockets, and any
decision that could be a pure function of its arguments.
"""
