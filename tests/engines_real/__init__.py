"""Real inference servers on CPU: installing, starting and asking them. `python -m tests.engines_real` runs them."""
