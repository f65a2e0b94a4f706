"""State machines of the protection loop: breakers, degrade, the history of parameter sets, the breach clock.

Each is a frozen value and pure functions that take `now`; nothing here knows a clock, a file or Envoy.
"""
