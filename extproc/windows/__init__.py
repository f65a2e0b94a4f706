"""What was seen lately: quantile sketches and windows that expire by themselves.

A read takes `now` and never mutates. Here: arithmetic over time. Not here: clocks, meaning of the numbers.
"""
