#!/usr/bin/env bash
# Carries out Deploy/Dockerfile in clean Debian roots, then starts docker-compose.yml's services there and uses them: what an
# engine would do, on a machine that has none. Needs root, the tools named below, and a Swift toolchain; takes as long as a
# release build of everything, and some minutes.
#
#   Deploy/check.sh                  all of it
#   Deploy/check.sh --prebuilt DIR   without the build: the three programs are taken from DIR; for working on this check
#
# Everything happens in namespaces and a directory of its own: however this ends, the kernel takes back mounts and processes
# with the namespaces. The directory is removed, unless this shell itself is killed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

[ "$(id -u)" = 0 ] || { echo "deploy-check: making roots and entering them takes root" >&2; exit 1; }
for tool in debootstrap docker-compose curl openssl ip unshare setpriv git swift; do
  command -v "$tool" >/dev/null || { echo "deploy-check: $tool is missing" >&2; exit 1; }
done

work=$(mktemp -d "${TMPDIR:-/tmp}/tidemark-deploy-check.XXXXXXXX")
child=
clean_up() {
  # The first process of a process namespace: the kernel ends the rest with it.
  [ -z "$child" ] || kill -KILL "$child" 2>/dev/null || true
  [ -z "$child" ] || wait "$child" 2>/dev/null || true
  rm -rf --one-file-system "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Debian's own interpreter: it has the YAML module that docker-compose brings.
# And should this shell be killed, unshare goes with it.
setpriv --pdeathsig KILL unshare --mount --propagation private --pid --fork --kill-child --mount-proc \
  /usr/bin/python3 "$here/check/check.py" --work "$work" "$@" &
child=$!
status=0
wait "$child" || status=$?
child=
exit "$status"
