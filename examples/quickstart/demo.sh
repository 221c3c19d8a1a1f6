#!/usr/bin/env bash
# Demonstrates Countersign in a temporary folder: certificates arrive, rotate, and keep rotating
# after the provider is killed.
# Usage: demo.sh FOLDER-WITH-THE-BINARIES
set -euo pipefail
bin=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
agent=
finish() {
  status=$?
  if [ "$status" -ne 0 ] && [ -f "$work/agent.log" ]; then cat "$work/agent.log" >&2; fi
  if [ -n "$agent" ]; then kill -TERM "$agent" 2>/dev/null || true; wait "$agent" || true; fi
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
cp "$bin"/countersign "$bin"/countersign-provider-* "$work/bin/"
chmod 0755 "$work/bin" "$work"/bin/*
cp "$here/countersign.yaml" "$work/"
cd "$work"
export PATH="$work/bin:$PATH" COUNTERSIGN_PROVIDER_PATH="$work/bin" TMPDIR="$work"

say 'countersign provider list'
countersign provider list
pin=$(countersign provider list -o json | sed -E 's/.*"name":"file"[^}]*"sha256":"([0-9a-f]{64})".*/\1/')

say 'countersign agent --config countersign.yaml --set providers.file.sha256=…   (certificates live 10 s)'
countersign agent --config countersign.yaml --set "providers.file.sha256=$pin" 2>agent.log &
agent=$!

say 'countersign secrets watch'
countersign secrets watch --socket ./socket --for 22s 2>/dev/null &
watch=$!

sleep 8
provider=$(pgrep -P "$agent" | head -1)
say "kill -9 $provider: the provider is gone; the agent keeps serving and restarts it"
kill -9 "$provider"
wait "$watch"

say 'what the agent said of its provider'
grep -E 'provider (ended|state)' agent.log | sed -E 's/^time=([^ ]*) level=[A-Z]+ //; s/ (next_start|last_output)=.*//'
rotations=$(grep -c 'serving new certificate' agent.log)
restarts=$(grep -c 'state=ready' agent.log)
kill -TERM "$agent"
wait "$agent"
agent=
if [ "$rotations" -lt 3 ] || [ "$restarts" -lt 2 ]; then
  say "failed: $rotations certificates, the provider was ready $restarts times"
  exit 1
fi
say "done: $rotations certificates served, the provider was ready $restarts times, nothing left behind"
