#!/usr/bin/env bash
# Creates the files of docker-compose.yml in Deploy/secrets, or in the directory given as the argument: the secret
# between gateways and store and their certificates, the secrets of tokens and of push tickets, and a self-signed
# certificate for HAProxy. Existing files stay. A tasks file of the worker, tasks.yaml, is made readable for it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
directory=${1:-$here/secrets}
# The users in the containers: tidemark in Deploy/Dockerfile, haproxy in the haproxy image.
service_gid=10001
haproxy_gid=99

umask 077
mkdir -p "$directory"
# Other users of this machine cannot enter the directory. Containers mount single files, not the directory.
chmod 0700 "$directory"

for name in frame-secret jwt-secret ticket-secret; do
  [ -e "$directory/$name" ] || openssl rand -hex 32 >"$directory/$name"
done
# Named as gateways' --store names it.
[ -e "$directory/store-cert.pem" ] || "$here/link-certificates.sh" "$directory" store DNS:store
[ -e "$directory/gateway-cert.pem" ] || "$here/link-certificates.sh" "$directory" gateway DNS:gateway
if [ ! -e "$directory/haproxy.pem" ]; then
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 365 -subj /CN=localhost \
    -addext 'subjectAltName=DNS:localhost,DNS:haproxy,IP:127.0.0.1,IP:::1' \
    -addext 'basicConstraints=critical,CA:FALSE' \
    -keyout "$directory/haproxy.key.new" -out "$directory/haproxy.crt.new" 2>/dev/null
  cat "$directory/haproxy.crt.new" "$directory/haproxy.key.new" >"$directory/haproxy.pem.new"
  # The certificate alone, for clients: curl --cacert.
  mv "$directory/haproxy.crt.new" "$directory/haproxy.crt"
  mv "$directory/haproxy.pem.new" "$directory/haproxy.pem"
  rm "$directory/haproxy.key.new"
fi

# A file keeps its owner and mode when it is mounted into a container. The authority's key is mounted into none.
services=()
for name in frame-secret jwt-secret ticket-secret link-ca.pem store-cert.pem store-key.pem \
  gateway-cert.pem gateway-key.pem; do
  services+=("$directory/$name")
done
# Of the worker. With a certificate of your own there is no haproxy.crt.
for name in haproxy.crt tasks.yaml; do
  [ ! -e "$directory/$name" ] || services+=("$directory/$name")
done
if [ "$(id -u)" = 0 ]; then
  chgrp "$service_gid" "${services[@]}"
  chgrp "$haproxy_gid" "$directory/haproxy.pem"
  chmod 0640 "${services[@]}" "$directory/haproxy.pem"
else
  # Without root the files cannot change their group, so they are readable by all; the directory protects them here.
  # The services log a warning about it when they start.
  chmod 0644 "${services[@]}" "$directory/haproxy.pem"
fi
echo "secrets and certificates are in $directory"
