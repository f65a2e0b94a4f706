"""Protobuf to values and back: the only place that knows protobuf.

Belongs here: field-by-field translation over the generated messages in `wire/` (never edited by hand).
Forbidden: deciding anything.
"""
