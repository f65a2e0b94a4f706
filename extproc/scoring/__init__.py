"""From readings of endpoints to integer weights, as pure functions.

Here: terms, scores, shares, the reason of each; `weigh` is the way in. Not here: where readings come from, who
publishes weights, clocks.
"""
