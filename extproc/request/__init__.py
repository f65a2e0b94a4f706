"""Reads a request and writes the changed one.

Belongs here: body formats (`dialects/`), classification (`classify/`), paths, headers, and the edit that
keeps every byte no rule names. Forbidden: deciding a parameter, and anything that waits.
"""
