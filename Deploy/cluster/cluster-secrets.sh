#!/usr/bin/env bash
# Creates what a cluster needs beside the files of ../service-secrets.sh, in Deploy/secrets or in the directory given as
# the argument: the nodes' certificate, and an authority of etcd with certificates for its servers and for the nodes.
# Existing files stay. Run ../service-secrets.sh (`make secrets`) first.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
directory=${1:-$here/../secrets}
service_gid=10001

[ -e "$directory/link-ca.pem" ] || { echo "$directory has no link-ca.pem: run make secrets first" >&2; exit 1; }
# Also where an earlier certificate lacks a name.
make_certificate() {
  local named=
  [ ! -e "$1/$2-cert.pem" ] || named=$(openssl x509 -in "$1/$2-cert.pem" -noout -ext subjectAltName | tr -d ' ')
  for name in ${3//,/ }; do
    case ",$named," in *[,$'\n']"$name"[,$'\n']*) ;; *) named=; break ;; esac
  done
  [ -n "$named" ] || "$here/../link-certificates.sh" "$1" "$2" "$3"
}
# Named as --advertise and gateways' --store name them, in docker-compose.yml and in kubernetes.yaml.
make_certificate "$directory" node DNS:node-1,DNS:node-2,DNS:node-3,DNS:node-1.node,DNS:node-2.node,DNS:node-3.node
make_certificate "$directory/etcd" etcd DNS:etcd-1,DNS:etcd-2,DNS:etcd-3,DNS:etcd-1.etcd,DNS:etcd-2.etcd,DNS:etcd-3.etcd
make_certificate "$directory/etcd" node DNS:node

# As in ../service-secrets.sh. etcd's image runs as root, and reads all of them.
files=("$directory"/node-{cert,key}.pem "$directory"/etcd/{link-ca,etcd-cert,etcd-key,node-cert,node-key}.pem)
chmod 0755 "$directory/etcd"
if [ "$(id -u)" = 0 ]; then
  chgrp "$service_gid" "${files[@]}"
  chmod 0640 "${files[@]}"
else
  chmod 0644 "${files[@]}"
fi
echo "the cluster's certificates are in $directory"
