# upgrade restarts the program's unit if "config validate" of the new version accepts its configuration.
# Otherwise the old version runs on with what it has verified: stopped, it would not start again.
upgrade() {
  unit=$program.service config=/etc/countersign/$program.yaml
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

# The package's programs and lock file are all in place now. A service that somebody started in the
# middle may have stopped for good.
case "$1 ${2:+upgraded}" in
"configure upgraded" | "2 ")
  if [ -d /run/systemd/system ]; then upgrade; fi
  ;;
esac
