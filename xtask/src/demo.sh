# Runs a host and shows its alarms until the host ends: by Ctrl-C, by a signal to this shell, or after a time.
# Arguments: the weir program, the run folder, the listen address, seconds or nothing, further options of the host.
weir=$1 dir=$2 listen=$3 seconds=$4
shift 4
stopping= helpers=

"$weir" run --store "$dir/store" --data "$dir/data" --listen "$listen" "$@" >"$dir/weir.log" 2>&1 &
host=$!
running() { kill -0 "$host" 2>/dev/null; }

# The terminal sends Ctrl-C to the host as well, so it is only noted here; what is sent to this shell alone is passed on.
trap 'stopping=1' INT
trap 'stopping=1; kill -TERM "$host" 2>/dev/null' TERM HUP

# The host makes its socket when it can be asked.
while running && [ ! -S "$dir/data/host.sock" ]; do sleep 0.1; done
if running; then
  "$weir" tail --from-start --data "$dir/data" &
  helpers=$!
  if [ -n "$seconds" ]; then
    (sleep "$seconds"; kill -TERM $$) >/dev/null 2>&1 &
    helpers="$helpers $!"
  fi
fi

# A signal interrupts `wait`.
while :; do
  wait "$host"
  code=$?
  running || break
done
[ -z "$helpers" ] || kill $helpers 2>/dev/null
if [ -n "$stopping" ] && [ "$code" -gt 128 ]; then code=0; fi
if [ "$code" -ne 0 ]; then
  printf '\nThe host ended with code %s. The end of %s/weir.log:\n' "$code" "$dir" >&2
  tail -n 20 "$dir/weir.log" >&2
else
  printf '\nStopped. `cargo xtask demo --keep` goes on where it was; %s holds everything.\n' "$dir"
fi
exit "$code"
