#!/bin/sh
# Before "remove" of dpkg and 0 of rpm. In an upgrade the agent runs on.
set -e
case "$1" in
remove | 0)
  if [ -d /run/systemd/system ]; then systemctl --no-reload disable --now countersign.service || true; fi
  ;;
esac
