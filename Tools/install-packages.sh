#!/usr/bin/env bash
# Installs those of these Debian packages that are missing, as root or with sudo, and leaves their services off: tests
# and bench start their own. Does nothing where all are installed.
# usage: install-packages.sh PACKAGE...
set -euo pipefail

# Sets `missing` to those of these packages that are not installed.
find_missing() {
  missing=()
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
  done
}

find_missing "$@"
[ ${#missing[@]} != 0 ] || exit 0
[ "$(id -u)" = 0 ] || exec sudo "$0" "${missing[@]}"

# One installation at a time, because make runs targets beside each other: apt-get refuses a second one, and the files
# below belong to one. Another one may have installed these packages in the meantime.
exec 9</var/lib/dpkg
flock 9
find_missing "$@"
[ ${#missing[@]} != 0 ] || exit 0
echo "installing, services off: ${missing[*]}"

# What systemd starts at boot: a link for each unit that is enabled.
wants=/etc/systemd/system/multi-user.target.wants
enabled_units() { ls "$wants" 2>/dev/null || true; }
enabled_before=" $(enabled_units | tr '\n' ' ')"

# Debian's PostgreSQL would create a cluster of databases when it is installed. This file forbids that. The package's
# own file lies beside it afterwards (ucf keeps the file that it finds), and replaces it below.
cluster_settings=/etc/postgresql-common/createcluster.conf
forbids_cluster=
case " ${missing[*]} " in
  *" postgresql "*)
    if [ ! -e "$cluster_settings" ]; then
      forbids_cluster=1
      mkdir -p "${cluster_settings%/*}"
      echo "create_main_cluster = false" >"$cluster_settings"
    fi
    ;;
esac

# Debian starts services when it installs them. It asks this program first, and 101 forbids it (invoke-rc.d(8)).
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  trap 'rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 755 "$policy"
fi

# A program that an installation starts does not inherit the lock.
apt-get update -qq 9<&-
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null 9<&-

if [ -n "$forbids_cluster" ] && [ -e "$cluster_settings.ucf-dist" ]; then
  mv "$cluster_settings.ucf-dist" "$cluster_settings"
fi

# The installation has enabled the services for the next boot.
[ -d /run/systemd/system ] || exit 0
for unit in $(enabled_units); do
  case "$enabled_before" in
    *" $unit "*) ;;
    *) systemctl disable --quiet "$unit" ;;
  esac
done
