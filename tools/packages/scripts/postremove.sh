#!/bin/sh
# After "remove" and "purge" of dpkg and 0 of rpm. A user stays: files elsewhere may be its.
set -e
case "$1" in
purge)
  rm -rf /var/lib/countersign /var/cache/countersign /etc/countersign/countersign.lock /etc/countersign/state.key
  rm -f /etc/systemd/system/multi-user.target.wants/countersign.service
  rmdir /etc/countersign 2>/dev/null || true # what else is there is the operator's
  ;;
esac
case "$1" in
remove | purge | 0)
  if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
  ;;
esac
