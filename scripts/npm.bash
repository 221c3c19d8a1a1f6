# Sourced after cache.bash by scripts that install with npm. The program's folder gets $files,
# node_modules as the package-lock.json among them says, and a link to node. Such a script can
# define prepare, which adds to the folder $1 before.
node=$(scripts/get-node --path)/node
inputs=(scripts/npm.bash "${files[@]}")
also=$node
# The link must not dangle if node is in the cache, too.
[ $# -gt 0 ] || scripts/get-node >/dev/null || without "no Node.js with npm"

# Node.js has its own roots, but only the machine may trust the registry's.
roots=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
if [ -z "${NODE_EXTRA_CA_CERTS:-}" ] && [ -r "$roots" ]; then
  export NODE_EXTRA_CA_CERTS=$roots
fi

prepare() { :; }

build() {
  cp "${files[@]}" "$1"
  PATH=${node%/*}:$PATH
  prepare "$1"
  npm ci --prefix "$1" --ignore-scripts --no-audit --no-fund --loglevel=error ||
    without "npm failed"
  ln -s "$node" "$1/node"
}
