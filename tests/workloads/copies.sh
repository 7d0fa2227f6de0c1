#!/bin/sh
# Everything about copies over several links that needs GPUs, in one go; run from the repository root after `make dist`.
# Progress goes to standard error, all tables to standard output at the end. FOLDER gets what each run printed.
#
#   tests/workloads/copies.sh [FOLDER]          GB=30 size of the checkpoint, REPEAT=2 runs each way, SKIP="ranks loader" leaves out, LATENCY=path
set -u
out=${1:-$(mktemp -d)}
here=$(dirname "$0")
library=$PWD/dist/lib/libwmshim.so
latency=${LATENCY:-target/release/latency}
mkdir -p "$out"

step() { # name, seconds, command...
    name=$1 limit=$2
    shift 2
    case " ${SKIP:-} " in *" $name "*) return ;; esac
    echo "$name ..." >&2
    timeout "$limit" "$@" >"$out/$name.txt" 2>"$out/$name.err" || echo "$name: exit $?, see $out/$name.err" >>"$out/$name.txt"
}

step bench 110 dist/bin/wmctl bench copy --largest 4096
step pulled 90 dist/bin/wmctl bench copy --largest 1024 --pull 64 --minimum 8
step doctor 20 dist/bin/wmctl doctor
# A small copy, bare and behind each setting. `cargo build --release -p latency` makes the program.
if [ -x "$latency" ]; then
    step latency_bare 30 "$latency"
    step latency_off 30 env LD_PRELOAD="$library" WMSHIM_MULTIPATH=off "$latency"
    step latency_auto 30 env LD_PRELOAD="$library" WMSHIM_MULTIPATH=auto "$latency"
fi
step checkpoint 170 python3 "$here/checkpoint.py" --gb "${GB:-30}" --repeat "${REPEAT:-2}"
step loader 120 python3 "$here/loader.py" --repeat "${REPEAT:-2}"
step ranks 120 python3 "$here/ranks.py" --repeat "${REPEAT:-2}"
step matmul_beside 120 python3 "$here/matmul_beside.py" --repeat 1

for name in bench pulled doctor latency_bare latency_off latency_auto checkpoint loader ranks matmul_beside; do
    if [ -f "$out/$name.txt" ]; then printf '\n== %s\n' "$name" && cat "$out/$name.txt"; fi
done
