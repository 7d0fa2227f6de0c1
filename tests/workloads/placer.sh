#!/bin/sh
# Moves beside leaving memory in place, on one GPU in 150 seconds: GPT-2 XL with AdamW and a decoder of 7 billion parameters, each on
# SHARE per cent of its need. Run from the repository root after `make dist`; LIBRARY names the library. Prints each step, and ratios.
#
#   tests/workloads/placer.sh       SHARE=60, LAYERS for smaller models
set -u
here=$(dirname "$0")
library=${LIBRARY:-dist/lib/libwmshim.so}
[ -f "$library" ] || { echo "no library at $library" >&2; exit 1; }
lines=$(mktemp) && trap 'rm -f "$lines"' EXIT
export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:21

# The figure NAME of the last run's result.
figure() { sed -n 's/^RESULT //p' "$lines" | tail -n 1 | python3 -c "import json, sys; print(json.load(sys.stdin)['$1'])"; }

for kind in train decode; do
    echo "== $kind, bare"
    STEPS=6 LONGEST=8 timeout 30 python3 "$here/placer.py" $kind | tee "$lines"
    need=$(figure peak_bytes) || continue
    bare=$(figure late_s)
    limit=$((need / 100 * ${SHARE:-60} / 1048576))MiB
    for migrate in off on; do
        echo "== $kind, device $limit, WMSHIM_MIGRATE=$migrate"
        LONGEST=18 STEPS=200 WMSHIM_LOG=info WMSHIM_MIGRATE=$migrate WMSHIM_DEVICE_LIMIT=$limit LD_PRELOAD=$library \
            timeout 38 python3 "$here/placer.py" $kind | tee "$lines"
        late=$(figure late_s) || late=nan
        [ $migrate = off ] && off=$late
        python3 -c "print('$kind $migrate: %s s a step, %.3f of bare, %.3f of moves off' % ($late, $late / $bare, $late / ${off:-nan}))" 2>/dev/null \
            || echo "$kind $migrate: failed"
    done
done
