#!/bin/sh
# Ends the containers of a network at a time, on the machine of their Docker Engine. That may have
# no Python and no systemd. $0 is the path of this file there; container_deadline.py calls it.
#
#   start ARGUMENTS  write this file from standard input, and have it wait in place of an earlier one
#   look ARGUMENTS   print "running" if one with the same arguments waits
#   stop             end it, and remove its files
#   wait ARGUMENTS   wait for the end, and stop the containers; started by `start`
#
# ARGUMENTS: END DRAIN NETWORK NOTEBOOK NOTICE HEAD COMMAND...
#
# At END (seconds since 1970) all containers on NETWORK are stopped. DRAIN seconds before that,
# COMMAND runs in the container HEAD, with `drain` and the seconds that are left. The shell command
# NOTICE tells the end in the container NOTEBOOK; "" for none. The clock is asked each second, so one
# that is set right is followed.
set -u
umask 077
folder=${0%/*}

fail() {
  printf '%s\n' "$*" >&2
  exit 1
}

say() {
  printf '%s UTC %s\n' "$(date -u '+%Y-%m-%d %H:%M:%S')" "$*"
}

# Sets `pid` and `words`, its command line; fails if no process of this file waits. Numbers of
# processes are used again, so the number alone says nothing.
find_process() {
  pid=$(cat "$0.pid" 2>/dev/null) || return 1
  words=$(tr '\0' '\n' 2>/dev/null <"/proc/$pid/cmdline") || return 1
  case $words in "$(printf '%s\n' sh "$0" wait)"*) ;; *) return 1 ;; esac
}

end_process() {
  if find_process; then kill -s TERM -- "-$pid"; fi
}

wait_until() {
  while [ "$(date +%s)" -lt "$1" ]; do
    if [ -n "$notice" ] && timeout 60 docker exec "$notebook" sh -c "$notice" >/dev/null 2>&1; then
      notice=
    fi
    sleep 1
  done
}

wait_for_end() {
  end=$1 drain=$2 network=$3 notebook=$4 notice=$5 head=$6
  shift 6
  say "the containers on network $network end in $((end - $(date +%s))) s"
  wait_until $((end - drain))
  left=$((end - $(date +%s)))
  if [ "$left" -gt 0 ]; then
    say "runs store a checkpoint and leave, for at most $left s"
    # In the background: whatever becomes of it, and wherever the clock is set, the end comes.
    { docker exec "$head" "$@" drain "$left" ||
      say "the workers could not be drained: runs have their last checkpoints"; } &
  fi
  wait_until "$end"
  say "the reservation is over: all containers end"
  # Docker may be starting, and one may have been removed meanwhile.
  until running=$(docker ps --quiet --filter "network=$network" 2>/dev/null) && [ -z "$running" ]; do
    # shellcheck disable=SC2086  # one word for each container; the client stops them in parallel
    [ -z "$running" ] || docker stop $running
    sleep 1
  done
  say "all containers have ended"
}

command=$1
shift
case $command in
start)
  for each in docker setsid timeout; do
    command -v "$each" >/dev/null || fail "the program $each is not on PATH, and the timer of the" \
      "setting reservation needs it: install it there, or remove the setting"
  done
  docker network inspect "$3" >/dev/null || fail "the docker program there cannot use the Engine," \
    "as the timer of the setting reservation has to: repair it, or remove the setting"
  end_process
  { mkdir -p "$folder" && cat >"$0.new" && mv "$0.new" "$0"; } || exit 1
  # A session of its own: it outlives the login.
  setsid sh "$0" wait "$@" </dev/null >"$0.log" 2>&1 &
  echo $! >"$0.pid"
  ;;
look)
  if find_process && [ "$words" = "$(printf '%s\n' sh "$0" wait "$@")" ]; then echo running; fi
  ;;
stop)
  end_process
  rm -f "$0" "$0.new" "$0.pid" "$0.log"
  rmdir "$folder" "${folder%/*}" 2>/dev/null
  exit 0
  ;;
wait) wait_for_end "$@" ;;
esac
