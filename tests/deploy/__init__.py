"""What stands in deploy/ and docker-compose.yml, read without an engine that runs containers."""
