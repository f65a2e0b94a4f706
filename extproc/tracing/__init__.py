"""Spans of decisions: what continues a trace, and what a span tells. Knows no clock, no socket and no encoding."""
