"""One file per answer format: a whole JSON answer or one event's data to `Facts`.

Only the fields named are decoded. An answer that does not fit its format tells nothing, and is no error.
"""
