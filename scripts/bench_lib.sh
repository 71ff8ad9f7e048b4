# Shared by the benches that run whole processes. Sourced after lib.sh.
# shellcheck shell=bash

figure() { # BENCH FIGURE VALUE UNIT
  printf '{"bench":"%s","figure":"%s","value":%s,"unit":"%s"}\n' "$@"
}

# Busy jiffies of the whole machine, and of processes and their waited-for children.
machine_busy() { awk '/^cpu /{print $2+$3+$4+$7+$8+$9}' /proc/stat; }
process_busy() { # PID ...
  local pid sum=0 n
  for pid in "$@"; do
    n=$(awk '{sub(/.*\) /, ""); print $12+$13+$14+$15}' "/proc/$pid/stat" 2>/dev/null || echo 0)
    sum=$((sum + n))
  done
  echo "$sum"
}

# quiet_window PIDS COMMAND...: runs the command; fails (3) when others used more than 10 % of the
# machine meanwhile. The command's own children count as ours.
quiet_window() {
  local pids=$1 machine ours began elapsed foreign rc=0
  shift
  machine=$(machine_busy)
  # shellcheck disable=SC2086
  ours=$(process_busy $pids $$)
  began=$(date +%s%N)
  "$@" || rc=$?
  # shellcheck disable=SC2086
  ours=$(($(process_busy $pids $$) - ours))
  machine=$(($(machine_busy) - machine))
  elapsed=$((($(date +%s%N) - began) / 10000000))
  foreign=$(((machine - ours) * 100 / (elapsed * $(nproc) + 1)))
  [ "$foreign" -le 10 ] || return 3
  return $rc
}

# await_line FILE PATTERN: until a program has written such a line there, for at most 10 s.
await_line() {
  local i
  for i in $(seq 200); do
    grep -qE "$2" "$1" 2>/dev/null && return 0
    sleep 0.05
  done
  die "no line like \"$2\" in $1: $(tail -3 "$1" 2>&1)"
}

# await_http URL: until it answers 200, for at most 10 s.
await_http() {
  local i
  for i in $(seq 200); do
    [ "$(curl -s -o /dev/null -w '%{http_code}' "$1")" = 200 ] && return 0
    sleep 0.05
  done
  die "nothing answers at $1"
}
