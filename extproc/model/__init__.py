"""Frozen values that every other room speaks in: names, requests, decisions, events, commands.

Belongs here: values without behaviour beyond reading themselves. Forbidden: reading anything,
deciding anything, and imports of other rooms but `errors`.
"""
