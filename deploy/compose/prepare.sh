#!/bin/sh
# Once, before the others: what Envoy starts from, and a password for Redis that stands in no file of the project.
set -eu
umask 027
config=/etc/extproc/extproc.yaml
extproc check "$config"
extproc envoy-config --config "$config" --state-dir /var/lib/extproc > /run/extproc/envoy.json.new
mv /run/extproc/envoy.json.new /run/extproc/envoy.json
[ -s /run/redis-auth/password ] ||
  python3 -c 'import secrets; print(secrets.token_urlsafe(32))' > /run/redis-auth/password
