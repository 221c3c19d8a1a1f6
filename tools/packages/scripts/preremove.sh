#!/bin/sh
# Before "remove" of dpkg and 0 of rpm. In an upgrade the agent runs on.
set -e
[ -d /run/systemd/system ] || exit 0
case "$1" in
# Only a purge forgets that the unit is enabled: installed again, it is as it was.
remove) systemctl stop countersign.service || true ;;
0) systemctl --no-reload disable --now countersign.service || true ;;
esac
