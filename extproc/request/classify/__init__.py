"""Tells what a request is about: one classifier per file, and `pick`, which lets the first opinion decide.

Belongs here: ways from a parsed request and its caller to a `Classification`. Forbidden: reading bodies,
deciding parameters, keeping or returning any of the text that was looked at.
"""
