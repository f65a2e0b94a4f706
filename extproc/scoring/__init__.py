"""From readings of endpoints to integer weights, as pure functions.

Here: terms, scores, shares, the reason of each. Not here: where readings come from, who publishes weights, clocks.
"""
