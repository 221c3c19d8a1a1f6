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

# The key of "state:" in the configuration. Without it, each start would order new certificates. It is
# root's, so that an agent with User=root and few capabilities can read it, too.
key=/etc/countersign/state.key
if [ ! -s "$key" ]; then
  install -o root -g countersign -m 0440 /dev/null "$key"
  head -c 48 /dev/urandom >"$key"
fi

[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload

# upgrade PROGRAM restarts its unit if "config validate" of the new version accepts its configuration.
# Otherwise the old version runs on with what it has verified: stopped, it would not start again.
upgrade() {
  program=$1 unit=$1.service config=/etc/countersign/$1.yaml
  systemctl is-enabled --quiet "$unit" || systemctl is-active --quiet "$unit" || return 0
  started=$(systemctl show --property=ExecStart --value "$unit") || started=
  case $started in
  *--config[=\ ]*)
    config=${started##*--config[= ]}
    config=${config%%[ ;]*}
    ;;
  esac
  # Variables of whoever runs the upgrade are not the service's.
  if env -i PATH="$PATH" XDG_RUNTIME_DIR=/run/countersign "$program" config validate --config "$config" >/dev/null; then
    systemctl restart "$unit" || echo "$unit does not start: see journalctl -u $unit" >&2
  else
    echo "$unit was not restarted, as the new version refuses $config: correct it, and run systemctl restart $unit" >&2
  fi
}

# Programs and lock file are all in place now. A service that somebody started in the middle may have
# stopped for good.
case "$1 ${2:+upgraded}" in
"configure upgraded" | "2 ")
  upgrade countersign
  upgrade countersign-discovery
  upgrade countersign-ra
  ;;
esac
