"""Policies: one small function per rule, from a context and the values so far to changes.

Belongs here: what rules say about parameters, length, priority and destination. Forbidden:
reading bodies, writing anything, clocks, and knowing how an engine spells a field.
"""
