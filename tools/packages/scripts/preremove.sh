[ -d /run/systemd/system ] || exit 0
case "$1" in
# Only a purge forgets that the unit is enabled: installed again, it is as it was.
remove) systemctl stop "$program.service" || true ;;
0) systemctl --no-reload disable --now "$program.service" || true ;;
esac
