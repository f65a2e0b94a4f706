"""The status page as text: plain values in, HTML out. Knows no clock and no socket."""
