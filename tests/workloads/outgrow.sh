#!/bin/sh
# Programs that need more memory than the device has, on one GPU: each KIND of outgrow.py bare, then on SHARE per cent of its peak with moves
# off and on (and `auto` where docs/settings.md has it). Some 90 seconds a kind. Run from the repository root after `make dist`; ratios are
# by outgrow_row.py, which explains them. With OUT, each run is a line of $OUT/outgrow.jsonl.
#
#   tests/workloads/outgrow.sh KIND...    SHARE="60" or several; 100 is all of the peak and 3 GiB; MODES="off on"; SCALE, a kind's size;
#                                         LONGEST=20 seconds of steps, BARE=8 of the bare run's; GPU=1; LIBRARY; PYTHON
set -u
here=$(dirname "$0")
library=${LIBRARY:-dist/lib/libwmshim.so}
python=${PYTHON:-python3}
[ $# -gt 0 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ -f "$library" ] || { echo "no library at $library" >&2; exit 1; }
if [ -z "${MODES:-}" ]; then
    MODES="off on"
    grep -q '^| `WMSHIM_MIGRATE` |[^|]*auto' "$here/../../docs/settings.md" && MODES="$MODES auto"
fi
[ -z "${GPU:-}" ] || export CUDA_VISIBLE_DEVICES="$GPU"
# XLA's own allocator ends at its share of the device.
export WMSHIM_JAX_ALLOCATOR="${WMSHIM_JAX_ALLOCATOR:-auto}"
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT

# Runs KIND with the variables given, and leaves its lines and statistics in $work under NAME. A run that does not end is told to, and
# then has figures of the steps that it made.
measure() { # NAME SECONDS variable=value...
    name=$1 longest=$2
    shift 2
    # Loading, compiling and pinning come before and beside the steps.
    timeout -k 15 $((longest + ${BEFORE:-60})) env "$@" LONGEST="$longest" STEPS="${STEPS:-400}" "$python" "$here/outgrow.py" "$kind" \
        >"$work/$name.txt" 2>"$work/$name.err"
    code=$?
    grep -v '^RESULT ' "$work/$name.txt" | sed -n '1,6p;7,${$p}'
    [ $code -eq 0 ] || { echo "$kind $name: exit $code"; tail -n 12 "$work/$name.err"; }
}

row() { "$python" "$here/outgrow_row.py" "$work" "$kind" "$@"; }

for kind; do
    rm -f "$work"/*
    echo "== $kind, bare"
    measure bare "${BARE:-8}" LD_PRELOAD=
    row bare || continue
    for share in ${SHARE:-60}; do
        limit=$(row --limit "$share")
        for mode in $MODES; do
            echo "== $kind, $share % of its peak: $limit MiB, WMSHIM_MIGRATE=$mode"
            measure "$mode" "${LONGEST:-20}" LD_PRELOAD="$(realpath "$library")" WMSHIM_DEVICE_LIMIT="${limit}MiB" WMSHIM_MIGRATE="$mode" \
                WMSHIM_STATS_AT_EXIT="$work/%p.json"
            row "$mode" "$share"
        done
    done
done
