# The agent's user, its folder and the key of its state.
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

if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
