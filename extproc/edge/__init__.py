"""Thin adapters to the outside: gRPC, HTTP, files, metrics.

Belongs here: sockets, files and other people's libraries, translated into our values and back. Forbidden:
decisions, and importing another module of this package: the composition root connects them.
"""
