# Sourced by the scripts get-*, each of which obtains one foreign program. They keep it in the
# cache that all clones share: $CACHE, else $XDG_CACHE_HOME/countersign, else
# ~/.cache/countersign. A script sets
#
#   program   its name, as in get-NAME
#   version   of the program; empty where it has none
#   about     how it is obtained, and about how long that takes
#   inputs    the files that determine the result, beside the script itself
#   also      what else determines it, as text (optional)
#   result    the path below the program's folder that is printed (optional)
#   left      what is left out without the program (optional; without it, that is an error)
#
# and a function build, which fills the folder $1. Then it calls `obtain "$@"`:
#
#   get-NAME             obtains the program if the cache lacks it, and prints its path
#   get-NAME --path      prints the path that it has or would have
#   get-NAME --missing   prints a line if the cache lacks it
#
# Nothing that is built may refer to the clone that built it.
set -euo pipefail

fail() {
  echo "get-$program: $1" >&2
  exit 1
}

# without ends the script: without the program, some tests are left out, but never in CI.
without() {
  [ -n "${left:-}" ] || fail "$1"
  echo "get-$program: $1; $left left out" >&2
  [ -z "${CI:-}" ] || exit 1
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

# check_cache refuses a folder that others can write: programs are run from it.
check_cache() {
  [ -O "$CACHE" ] || fail "the cache $CACHE belongs to another user; set CACHE to another folder"
  [ $((0$(stat -Lc %a "$CACHE") & 0022)) = 0 ] || fail "others can write the cache $CACHE; run chmod go-w $CACHE"
}

# required prints the version of the module $2 in $1/go.mod.
required() {
  awk -v module="$2" '$1 == "require" {sub("require", "")} $1 == module {print $2; exit}' "$1/go.mod"
}

# key prints a hash of all that determines the result. It has the names of files, relative
# to the root of the clone.
key() {
  { sha256sum "scripts/${0##*/}" "${inputs[@]}" | LC_ALL=C sort && uname -sm && echo "${also:-}"; } | sha256sum | cut -c1-12
}

# remove also removes folders that nobody may write, such as copies of Go modules.
remove() {
  [ ! -e "$1" ] || { chmod -R u+w "$1" && rm -rf "$1"; }
}

# build_once makes the folder $1, whole or not at all. A second process waits for the first.
# Compilers inherit the lock, so a killed script releases it when the last of them has ended.
build_once() {
  new=$CACHE/$program.new # not local: the trap runs after the function
  (umask 077 && mkdir -p "$CACHE")
  check_cache
  exec 9>"$CACHE/$program.lock"
  flock -n 9 || { echo "get-$program: waiting for another process that builds it" >&2 && flock 9; }
  [ ! -d "$1" ] || return 0
  remove "$new" # left by a build that was killed
  trap 'remove "$new"' EXIT
  umask 022
  mkdir -p "$new/out" "$new/tmp"
  TMPDIR=$new/tmp build "$new/out" >&2
  mv -T "$new/out" "$1"
  # Versions that no clone has used for a month.
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

CACHE=$(cache_folder) # before the working directory changes
export CACHE
cd "$(dirname "${BASH_SOURCE[0]}")/.."
