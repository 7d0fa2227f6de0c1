#!/bin/sh
# Two programs that share a GPU through MPS: the memory cases of the conformance suite in both at once, first bare, then under
# the shim. A private MPS daemon is started in a temporary folder and ended again; no setting of the GPU is changed. If MPS
# is absent or not allowed, the script prints the reason in one line and ends. Run from the repository root after `make dist`.
#
#   tests/workloads/mps.sh [FOLDER]        FOLDER gets the output of each run; FILTER="memory. pool." chooses other cases
#
# Cases in which a kernel faults are left out: under MPS a fault may end every program of the server.
set -u
suite=${CONFORMANCE:-$PWD/dist/bin/conformance}
library=${LIBRARY:-$PWD/dist/lib/libwmshim.so}
accepted=tools/conformance/data/shim-differences.tsv
cases=${FILTER:-memory. bad_input. managed. pool. pool_order. pool_share. pointer. copy. memset. graph share. share_ends. vmm.}
control=nvidia-cuda-mps-control
out=${1:-$(mktemp -d)}
mkdir -p "$out" || exit 2

leave() { # why
    echo "mps: not run: $1"
    exit 0
}

tell() { # command for the daemon
    echo "$1" | timeout 10 "$control" 2>&1
}

# The daemon and its servers write their logs to these folders only.
CUDA_MPS_PIPE_DIRECTORY=$(mktemp -d)
CUDA_MPS_LOG_DIRECTORY=$CUDA_MPS_PIPE_DIRECTORY
export CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY

clean() {
    unset LD_PRELOAD
    [ -n "${started:-}" ] && tell quit >/dev/null
    cp "$CUDA_MPS_LOG_DIRECTORY"/*.log "$out" 2>/dev/null
    rm -rf "$CUDA_MPS_PIPE_DIRECTORY"
}
trap clean EXIT
trap 'exit 130' INT TERM

[ -x "$suite" ] || leave "$suite is not there: make dist"
command -v "$control" >/dev/null || leave "$control is not on the path: MPS is not installed on this machine"
timeout 20 "$control" -d >"$out/daemon.txt" 2>&1 || leave "the daemon does not start: $(tail -n 1 "$out/daemon.txt")"
started=yes
timeout 60 "$suite" --filter init.devices >"$out/first.txt" 2>&1 ||
    leave "the GPU cannot be used through MPS: $(tail -n 3 "$out/first.txt" | tr '\n' ' ')"
servers=$(tell get_server_list)
[ -n "$servers" ] || leave "no server came up, so programs here do not go through MPS"
echo "mps: server $servers"

run() { # way, process
    set -- "$1" "$2" $(for word in $cases; do printf -- '--filter %s ' "$word"; done)
    way=$1 process=$2
    shift 2
    timeout 400 "$suite" "$@" --skip faults. --save "$out/$way$process.json" >"$out/$way$process.txt" 2>&1
}

both() { # way
    run "$1" 1 &
    run "$1" 2
    wait
    for process in 1 2; do printf '%-6s %s  %s\n' "$1" "$process" "$(tail -n 1 "$out/$1$process.txt")"; done
}

both bare
export LD_PRELOAD="$library" WMSHIM_STATS_DIR="$CUDA_MPS_PIPE_DIRECTORY"
both shim
unset LD_PRELOAD
for process in 1 2; do
    echo "== bare | shim, process $process"
    "$suite" --compare "$out/bare$process.json" "$out/shim$process.json" --same-machine --accept "$accepted" 2>/dev/null
done
echo "== cases that did not pass under the shim"
grep -h -A2 FAILED "$out"/shim?.txt || echo none
