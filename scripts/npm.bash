# Sourced after cache.bash by the scripts that install by npm what the package-lock.json
# among $files says. The program's folder holds these files, node_modules and a link to node.
node=$(scripts/get-node --path)/node
inputs=(scripts/npm.bash "${files[@]}")
also=$node
# Where Node.js is in the cache, the link to it must stay good.
[ $# -gt 0 ] || scripts/get-node >/dev/null || without "there is no Node.js with npm"

# Node.js brings roots of its own; a registry may be behind one that the machine trusts.
roots=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
if [ -z "${NODE_EXTRA_CA_CERTS:-}" ] && [ -r "$roots" ]; then
  export NODE_EXTRA_CA_CERTS=$roots
fi

build() {
  cp "${files[@]}" "$1"
  PATH=${node%/*}:$PATH npm ci --prefix "$1" --ignore-scripts --no-audit --no-fund --loglevel=error ||
    without "npm could not install what it needs"
  ln -s "$node" "$1/node"
}
