"""What the sidecar costs, measured on a real Envoy: `python -m bench`.

Belongs here: starting the parts, putting load on them, reading their counters, printing tables. Forbidden:
anything the product needs at run time, and figures that were not measured in the run that prints them.
"""
