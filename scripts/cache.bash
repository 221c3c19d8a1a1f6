# Sourced by the get-* scripts, each of which obtains one foreign program and keeps it in a
# cache that all clones share: $CACHE, else $XDG_CACHE_HOME/countersign, else
# ~/.cache/countersign. A script sets
#
#   program   its name, as in get-NAME
#   version   its version, or nothing
#   about     how to obtain it, and about how long that takes
#   inputs    the files that determine the result, besides the script itself
#   also      anything else that determines it (optional)
#   result    the path to print, relative to the program's folder (optional)
#   tests     the tests to skip without the program (optional: without it, fail)
#
# and defines build, which fills the folder $1. What it builds must not refer to this clone.
# Then it calls `obtain "$@"`:
#
#   get-NAME             obtain the program if the cache lacks it, and print its path
#   get-NAME --path      print the path that it has or would have
#   get-NAME --missing   print a line if the cache lacks it
set -euo pipefail
also='' result='' tests=''

fail() {
  echo "get-$program: $1" >&2
  exit 1
}

# without ends the script because of $1. That is an error in CI, which skips no tests.
without() {
  [ -n "$tests" ] && [ -z "${CI:-}" ] || fail "$1"
  echo "get-$program: $1; skipping $tests" >&2
  exit 0
}

cache_folder() {
  if [ -n "${CACHE:-}" ]; then
    realpath -m "$CACHE"
  elif [[ ${XDG_CACHE_HOME:-} = /* ]]; then
    echo "$XDG_CACHE_HOME/countersign"
  else
    echo "${HOME:?is not set, and neither is CACHE}/.cache/countersign"
  fi
}

# check_cache refuses a folder that others can write, because tests run programs from it.
check_cache() {
  [ -O "$CACHE" ] || fail "cache folder $CACHE belongs to another user; set CACHE to another folder"
  [ $((0$(stat -Lc %a "$CACHE") & 0022)) = 0 ] || fail "others can write to cache folder $CACHE; run chmod go-w $CACHE"
}

# required prints the version of the module $2 in $1/go.mod.
required() {
  awk -v module="$2" '$1 == "require" {sub("require", "")} $1 == module {print $2; exit}' "$1/go.mod"
}

# key prints a hash of everything that determines the result. It covers the names of files,
# relative to the root of the clone.
key() {
  { sha256sum "scripts/${0##*/}" "${inputs[@]}" | LC_ALL=C sort && uname -sm && echo "$also"; } | sha256sum | cut -c1-12
}

# remove also removes read-only folders, such as copies of Go modules.
remove() {
  [ ! -e "$1" ] || { chmod -R u+w "$1" && rm -rf "$1"; }
}

# build_once makes the folder $1, complete or not at all. A second process waits for the first.
# Compilers inherit the lock: if the script is killed, they hold it until they have exited.
build_once() {
  new=$CACHE/$program.new # not local: the trap runs after the function
  (umask 077 && mkdir -p "$CACHE")
  check_cache
  exec 9>"$CACHE/$program.lock"
  flock -n 9 || { echo "get-$program: waiting for another process to build it" >&2 && flock 9; }
  [ ! -d "$1" ] || return 0
  remove "$new" # a killed build left it
  trap 'remove "$new"' EXIT
  umask 022
  mkdir -p "$new/out" "$new/tmp"
  TMPDIR=$new/tmp build "$new/out" >&2
  mv -T "$new/out" "$1"
  # Remove versions that no clone has used for a month.
  find "$CACHE" -maxdepth 1 -name "$program-*" -mtime +30 -exec rm -rf {} +
}

obtain() {
  local folder
  folder=$CACHE/$program-${version:+$version-}$(key)
  [ ! -e "$CACHE" ] || check_cache
  case ${1:-} in
  --missing)
    [ -d "$folder" ] || echo "$program${version:+ $version}: $about"
    return
    ;;
  '')
    [ -d "$folder" ] || build_once "$folder"
    touch "$folder"
    ;;
  --path) ;;
  *) fail "unknown option $1" ;;
  esac
  echo "$folder${result:+/$result}"
}

# The Makefile's is ours. Others' programs are built with the Go that they ask for.
unset GOTOOLCHAIN
CACHE=$(cache_folder) # before the working directory changes
export CACHE
cd "$(dirname "${BASH_SOURCE[0]}")/.."
