"""The stack of docker-compose.yml, started for real from a clean clone: `make test-compose`."""
