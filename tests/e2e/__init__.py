"""The whole chain as it runs: real Envoy, sidecar process, stand-in engine. Nothing here is faked or patched."""
