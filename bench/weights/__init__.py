"""Whether weights pay: `python -m bench.weights` puts the same load on several ways to balance it.

Belongs here: engines with a service-time model, their load, the real Envoy before them, figures and pictures.
Forbidden: a shortcut the product does not have. What is measured as ours are the product's own parts.
"""
