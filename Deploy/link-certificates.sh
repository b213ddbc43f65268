#!/usr/bin/env bash
# Makes what gateways and store need for TLS between them: a private authority, once, and a certificate by it.
#
#   Deploy/link-certificates.sh DIRECTORY NAME ALTERNATIVE[,ALTERNATIVE…]
#   Deploy/link-certificates.sh /etc/tidemark store DNS:store.internal,IP:10.0.0.5
#   Deploy/link-certificates.sh /etc/tidemark gateway DNS:gateway
#
# DIRECTORY/NAME-cert.pem and NAME-key.pem are for --tls-cert and --tls-key, DIRECTORY/link-ca.pem is for --tls-ca on
# both sides. The store's certificate must contain the name that gateways use as --store; a gateway's may contain any
# name. link-ca-key.pem signs certificates that the store accepts: keep it where no service can read it. An existing
# certificate is replaced, an existing authority is not; to replace it, see docs/operate/operations.md.
set -euo pipefail
[ $# = 3 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 64; }
directory=$1 name=$2 alternatives=$3
curve=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes)

umask 077
mkdir -p "$directory"
work=$(mktemp -d "$directory/.new.XXXXXX")
trap 'rm -rf "$work"' EXIT

if [ ! -e "$directory/link-ca.pem" ]; then
  # The name is unique: in a file with two authorities, the issuer of a certificate is found by name.
  openssl req -x509 "${curve[@]}" -days 3650 -subj "/CN=Tidemark link authority $(openssl rand -hex 4)" \
    -addext subjectKeyIdentifier=hash -addext 'basicConstraints=critical,CA:TRUE,pathlen:0' \
    -addext 'keyUsage=critical,keyCertSign,cRLSign' \
    -keyout "$work/link-ca-key.pem" -out "$work/link-ca.pem" 2>/dev/null
  mv "$work/link-ca-key.pem" "$directory/link-ca-key.pem"
  mv "$work/link-ca.pem" "$directory/link-ca.pem"
fi

openssl req "${curve[@]}" -subj "/CN=$name" -keyout "$work/key.pem" -out "$work/request.pem" 2>/dev/null
cat >"$work/extensions" <<END
subjectAltName=$alternatives
basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature
extendedKeyUsage=serverAuth,clientAuth
authorityKeyIdentifier=keyid
END
openssl x509 -req -in "$work/request.pem" -CA "$directory/link-ca.pem" -CAkey "$directory/link-ca-key.pem" \
  -set_serial "0x$(openssl rand -hex 16 | sed 's/^./4/')" -days 825 -extfile "$work/extensions" \
  -out "$work/cert.pem" 2>/dev/null
# The key first: a service that reads both between the two finds that they do not match, and keeps what it has.
mv "$work/key.pem" "$directory/$name-key.pem"
mv "$work/cert.pem" "$directory/$name-cert.pem"
