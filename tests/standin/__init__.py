"""The stand-in engine, asked by real clients."""
