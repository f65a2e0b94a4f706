"""How fast drift is found, and how often by mistake: synthetic and replayed latencies, ours against plainer
methods."""
