# Shared by the scripts beside it: where things are, and how to say what happens.
# shellcheck shell=bash
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${KVR_BUILD:-$root/build}
cd "$root"

say() { printf '\033[1m==> %s\033[0m\n' "$*"; }
die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

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
