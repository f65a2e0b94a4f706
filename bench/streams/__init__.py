"""Many slow streams at once, event by event: with the sidecar and without it, through the real Envoy."""
