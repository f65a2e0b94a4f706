"""From an engine's own metrics page to an `EngineSample`: one file per engine, pure.

Here: metric names and what they mean. Not here: sockets, clocks, weights. A page is filtered before it is parsed.
"""
