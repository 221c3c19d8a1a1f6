#!/bin/sh
# After "configure OLD-VERSION" of dpkg, and after 1 (installed) or 2 (upgraded) of rpm.
set -e

if ! getent passwd countersign >/dev/null; then
  if command -v systemd-sysusers >/dev/null; then
    systemd-sysusers /usr/lib/sysusers.d/countersign.conf
  else
    useradd --system --user-group --home-dir /var/lib/countersign --shell /usr/sbin/nologin --comment Countersign countersign
  fi
fi
# systemd makes it, too; this is for those who start the agent without.
install -d -o countersign -g countersign -m 0700 /var/lib/countersign

[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
# Programs and lock file are all in place now. Until here the agent ran on with what it had
# verified. One that somebody started in the middle may have stopped for good.
case "$1 ${2:+upgraded}" in
"configure upgraded" | "2 ")
  if systemctl is-enabled --quiet countersign.service || systemctl is-active --quiet countersign.service; then
    systemctl restart countersign.service || echo "countersign does not start: see journalctl -u countersign" >&2
  fi
  ;;
esac
