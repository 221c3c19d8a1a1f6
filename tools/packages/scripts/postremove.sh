# A user stays: files elsewhere may be its.
case "$1" in
purge)
  rm -rf "/var/lib/$program" "/var/cache/$program"
  rm -f "/etc/systemd/system/multi-user.target.wants/$program.service"
  if [ "$program" = countersign ]; then rm -f /etc/countersign/countersign.lock /etc/countersign/state.key; fi
  rmdir /etc/countersign 2>/dev/null || true # what else is there is the operator's
  ;;
esac
case "$1" in
remove | purge | 0)
  if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
  ;;
esac
