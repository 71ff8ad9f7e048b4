# Shared by the scripts beside it: where things are, and how to say what happens.
# shellcheck shell=bash
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${KVR_BUILD:-$root/build}
called_from=$PWD
cd "$root"

say() {
  if [ -t 1 ]; then printf '\033[1m==> %s\033[0m\n' "$*"; else printf '==> %s\n' "$*"; fi
}
die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# print_help: a script's opening comment. help_if_asked ARGUMENTS: and no more.
print_help() {
  awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "$root/scripts/$(basename "$0")"
}
help_if_asked() {
  case "${1:-}" in -h | --help) print_help; exit 0 ;; esac
}
# takes_nothing ARGUMENTS: help for one that asks for it, an error for any other.
takes_nothing() {
  help_if_asked "$@"
  [ $# -eq 0 ] || die "unknown argument $1 (see --help)"
}
# one_of WHAT ALLOWED NAME: dies unless NAME is a word of ALLOWED.
one_of() {
  local word
  for word in $2; do [ "$word" = "$3" ] && return 0; done
  die "unknown $1 \"$3\"; there are: $2"
}
# shown PATH: as whoever called the script would write it.
shown() { realpath --relative-to="$called_from" "$1"; }

# configure DIR TYPE [extra cmake arguments]: once; later builds reconfigure by themselves.
configure() {
  local dir=$1 type=$2
  shift 2
  [ -f "$dir/build.ninja" ] ||
    cmake -S "$root" -B "$dir" -G Ninja -DCMAKE_BUILD_TYPE="$type" "$@" >"$dir.log" 2>&1 ||
    { cat "$dir.log"; die "cmake failed"; }
  rm -f "$dir.log"
}

# compile DIR [targets]: quiet when all is well.
compile() {
  local dir=$1
  shift
  local log
  log=$(mktemp)
  ninja -C "$dir" "$@" >"$log" 2>&1 || { tail -40 "$log"; rm -f "$log"; die "build failed"; }
  rm -f "$log"
}
