#!/bin/sh
# Every form of copy between two GPUs, bare, under the library, and of blocks that lie partly on the host (WMSHIM_DEVICE_LIMIT): one line a form
# that goes wrong, and a count. The program is that of tests/hazards/tests/between.rs. Needs two GPUs that are peers, and gcc.
#
#   tests/workloads/between.sh [LIBRARY]         default: dist/lib/libwmshim.so
set -u
library=${1:-dist/lib/libwmshim.so}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
here=$(dirname "$0")
# The library has the driver's soname and all its names: the loader finds the driver by it.
gcc -O1 -D_GNU_SOURCE -I "$here/../hazards/c" -o "$folder/between" "$here/../hazards/c/between.c" "$library" || exit 2

forms="memcpy memcpy_ptds memcpy_async memcpy_async_null memcpy_async_ptsz dtod dtod_ptds dtod_async dtod_async_ptsz
    peer peer_ptds peer_async peer_async_ptsz attributes batch batch_v2 2d 2d_ptds 2d_unaligned 2d_async 2d_async_ptsz
    3d 3d_ptds 3d_async 3d_async_ptsz 3d_peer 3d_peer_ptds 3d_peer_async 3d_peer_async_ptsz 3d_batch 3d_batch_v2 3d_attributes
    htod htod_async htod_any htod_any_async dtoh dtoh_async dtoh_any dtoh_any_async
    captured graph graph_any graph_shape graph_any_shape set set_any set_ready set_ready_any"

bad=0
try() { # name, environment...
    name=$1 wrong=0 all=0
    shift
    for form in $forms; do
        all=$((all + 1))
        said=$(env "$@" timeout 60 "$folder/between" "$form" 2>&1)
        code=$?
        # A driver may be older than a form.
        case "$code $said" in 0\ * | *": 801" | *"symbol lookup error"*) continue ;; esac
        wrong=$((wrong + 1))
        printf '%s %s: ended with %d: %s\n' "$name" "$form" $code "$said"
    done
    printf '%s: %d of %d forms wrong\n' "$name" "$wrong" "$all"
    bad=$((bad + wrong))
}

try bare LD_PRELOAD=
try shim LD_PRELOAD="$library"
# The library refuses to change a node to a block on two tiers, and a mixed target makes such a node.
forms=$(echo "$forms" | sed 's/set.*//')
try mixed LD_PRELOAD="$library" WMSHIM_DEVICE_LIMIT=2MiB
[ "$bad" -eq 0 ]
