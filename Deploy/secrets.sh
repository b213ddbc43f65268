#!/usr/bin/env bash
# Makes what docker-compose.yml wants in Deploy/secrets (or in another directory, given as the argument): the secret between
# gateways and store, those of tokens and of push tickets, and a self-signed certificate for HAProxy. What is there already stays.
set -euo pipefail
directory=${1:-$(dirname "$0")/secrets}
# The users in the containers: tidemark in Deploy/Dockerfile, haproxy in the haproxy image.
service_gid=10001
haproxy_gid=99

umask 077
mkdir -p "$directory"
# Nobody else of this machine gets past the directory. A container is given single files, by mount, and sees no directory.
chmod 0700 "$directory"

for name in frame-secret jwt-secret ticket-secret; do
  [ -e "$directory/$name" ] || openssl rand -hex 32 >"$directory/$name"
done
if [ ! -e "$directory/haproxy.pem" ]; then
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 365 -subj /CN=localhost \
    -addext 'subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1' -addext 'basicConstraints=critical,CA:FALSE' \
    -keyout "$directory/haproxy.key.new" -out "$directory/haproxy.crt.new" 2>/dev/null
  cat "$directory/haproxy.crt.new" "$directory/haproxy.key.new" >"$directory/haproxy.pem.new"
  # The certificate alone, for clients: curl --cacert.
  mv "$directory/haproxy.crt.new" "$directory/haproxy.crt"
  mv "$directory/haproxy.pem.new" "$directory/haproxy.pem"
  rm "$directory/haproxy.key.new"
fi

# A file keeps its owner and mode when it is mounted into a container.
if [ "$(id -u)" = 0 ]; then
  chgrp "$service_gid" "$directory/frame-secret" "$directory/jwt-secret" "$directory/ticket-secret"
  chgrp "$haproxy_gid" "$directory/haproxy.pem"
  chmod 0640 "$directory/frame-secret" "$directory/jwt-secret" "$directory/ticket-secret" "$directory/haproxy.pem"
else
  # Without root no file can be given to another group: readable by whoever gets to see it, which the directory prevents here.
  # The services remark on it when they start.
  chmod 0644 "$directory/frame-secret" "$directory/jwt-secret" "$directory/ticket-secret" "$directory/haproxy.pem"
fi
echo "secrets and certificate are in $directory"
