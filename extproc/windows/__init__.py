"""What was seen lately: quantile sketches and windows that expire by themselves.

A read takes `now` and never mutates. Here: arithmetic over time, and how a request ended. Not here: clocks, and
what follows from the numbers.
"""
