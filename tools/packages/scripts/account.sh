# The user of the program and its folder.
if ! getent passwd "$program" >/dev/null; then
  if command -v systemd-sysusers >/dev/null; then
    systemd-sysusers "/usr/lib/sysusers.d/$program.conf"
  else
    useradd --system --user-group --home-dir "/var/lib/$program" --shell /usr/sbin/nologin --comment Countersign "$program"
  fi
fi
# systemd makes it, too; this is for those who start the program without.
install -d -o "$program" -g "$program" -m 0700 "/var/lib/$program"

if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
