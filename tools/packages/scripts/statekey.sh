# The key of "state:" in the configuration. Without it, each start would order new certificates. It is
# root's, so that an agent with User=root and few capabilities can read it, too.
key=/etc/countersign/state.key
if [ ! -s "$key" ]; then
  install -o root -g countersign -m 0440 /dev/null "$key"
  head -c 48 /dev/urandom >"$key"
fi
