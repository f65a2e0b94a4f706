"""The embedded stand-in engine: it speaks the HTTP APIs of real engines and answers with what it received.

What belongs here: one file per API (a pure function from `Received` to a `Reply`), and the thin server that
reads requests, remembers them and writes replies. What is forbidden: any import of the program's own rooms
other than `model` and `errors`. A stand-in that shared code with the sidecar would make the same mistakes
and hide them.
"""
