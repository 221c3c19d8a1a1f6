#!/usr/bin/env bash
# Demonstrates certificates on demand in a temporary folder: https://a.shop.example.org and
# https://b.shop.example.org, neither of them configured in Envoy or the agent, and a name that is
# refused.
# Usage: demo.sh FOLDER-WITH-THE-BINARIES ENVOY [PORT]
set -euo pipefail
bin=$(cd "$1" && pwd) envoy=$2 port=${3:-8443}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
children=()
finish() {
  status=$?
  if [ "$status" -ne 0 ]; then tail -n 20 "$work"/*.log >&2 || true; fi
  for child in "${children[@]}"; do kill -TERM "$child" 2>/dev/null || true; wait "$child" || true; done
  cd / && rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM
say() { printf '\n== %s\n' "$*"; }

# Ignore variables that configure another agent.
unset $(compgen -e COUNTERSIGN_ || true) CA_ADDR CA_PROVIDER

# A provider must be in a folder that only its owner can write; a checkout may be looser.
umask 022
mkdir "$work/bin"
cp "$bin/countersign" "$bin/countersign-provider-file" "$work/bin/"
chmod 0755 "$work/bin" "$work"/bin/*
cp "$here"/countersign.yaml "$here"/customers.txt "$work/"
sed "s/port_value: 8443/port_value: $port/" "$here/envoy.yaml" >"$work/envoy.yaml"
cd "$work"
(umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >state.key)
export PATH="$work/bin:$PATH" COUNTERSIGN_PROVIDER_PATH="$work/bin" TMPDIR="$work"
pin=$(countersign provider list -o json | sed -E 's/.*"name":"file"[^}]*"sha256":"([0-9a-f]{64})".*/\1/')

countersign agent --config countersign.yaml --set "providers.file.sha256=$pin" 2>agent.log &
children+=($!)
"$envoy" -c envoy.yaml --disable-hot-restart --log-level warn 2>envoy.log &
children+=($!)

fetch() { curl --noproxy '*' --silent --show-error --max-time 15 --retry 20 --retry-delay 1 --retry-connrefused --cacert ca/root-cert.pem --resolve "$1:$port:127.0.0.1" "https://$1:$port/"; }
for _ in $(seq 150); do
  if [ -s ca/root-cert.pem ] || ! kill -0 "${children[0]}" 2>/dev/null; then break; fi
  sleep 0.2
done
for _ in $(seq 150); do # until Envoy listens
  if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then break; fi
  sleep 0.2
done
for name in a.shop.example.org b.shop.example.org; do
  say "https://$name"
  fetch "$name"
done
say 'https://c.shop.example.org: not among the customers, so refused'
if fetch c.shop.example.org; then exit 1; fi
say 'done: what the agent ordered'
grep 'a.shop.example.org\|b.shop.example.org' agent.log || true
