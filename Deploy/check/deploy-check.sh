#!/usr/bin/env bash
# Checks the deployment files on a machine without a container engine: builds the images of Deploy/Dockerfile in clean
# Debian root directories, starts the services of docker-compose.yml in them, and sends requests. Needs root, a Swift
# toolchain and the tools below. Takes a full release build and some minutes.
#
#   deploy-check.sh                  the whole check
#   deploy-check.sh --prebuilt DIR   skips the build and copies the programs from DIR, for work on this check
#
# The check runs in namespaces of its own, so the kernel removes its mounts and processes in any case. Its directory is
# removed too, unless this shell is killed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

[ "$(id -u)" = 0 ] || { echo "deploy-check: making roots and entering them takes root" >&2; exit 1; }
for tool in debootstrap docker-compose curl openssl ip unshare setpriv git swift; do
  command -v "$tool" >/dev/null || { echo "deploy-check: $tool is missing" >&2; exit 1; }
done

work=$(mktemp -d "${TMPDIR:-/tmp}/tidemark-deploy-check.XXXXXXXX")
child=
# Only the traps call it.
# shellcheck disable=SC2317
clean_up() {
  # The first process of a process namespace: the kernel ends the rest with it.
  [ -z "$child" ] || kill -KILL "$child" 2>/dev/null || true
  [ -z "$child" ] || wait "$child" 2>/dev/null || true
  rm -rf --one-file-system "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Debian's interpreter has the YAML module that docker-compose depends on. If this shell is killed, unshare is too.
setpriv --pdeathsig KILL unshare --mount --propagation private --pid --fork --kill-child --mount-proc \
  /usr/bin/python3 "$here/check.py" --work "$work" "$@" &
child=$!
status=0
wait "$child" || status=$?
child=
exit "$status"
