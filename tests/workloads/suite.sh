#!/bin/bash
# The scenarios of the WholeMemory suite on GPUs, over NCCL: ranks of one machine pose as islands, one a GPU. A line for each scenario as it
# ends, then the counts. Run from the repository root after `make dist`. It ends within LIMIT seconds (default 120): what has not begun then
# is listed as not run.
#
#   tests/workloads/suite.sh [FOLDER]       FOLDER gets the output of scenarios that fail
#
# FILTERS (default: all that span islands) are parts of names, such as "training. caches."; WIRES are network (sockets of the loopback
# interface) and links (what NCCL finds); RANKS and ISLANDS default to the number of GPUs; ISLANDS=1 is the suite on one machine. JOBS
# scenarios run at once (default 4), each for EACH seconds at most. NCCL is a folder with libnccl.so.2 (default: PyTorch's). SUITE, LIBRARY
# and DRIVER are the program, the library and the driver, if they are others.
set -u
suite=${SUITE:-dist/dev/wholememory-suite} library=${LIBRARY:-dist/wholegraph/libwholegraph.so}
out=${1:-$(mktemp -d)}
ranks=${RANKS:-$(nvidia-smi -L | wc -l)}
islands=${ISLANDS:-$ranks}
began=$SECONDS
nccl=${NCCL:-$(python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0] + "/lib")')} || exit 2
export LD_LIBRARY_PATH="$nccl${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export WMSHIM_WHOLEMEMORY_TIMEOUT=${WMSHIM_WHOLEMEMORY_TIMEOUT:-20}
mkdir -p "$out" || exit 2

play() { # scenario, in the environment of a wire
    file=$out/$wire.$1.txt start=$(date +%s.%N)
    limit=$((deadline - $(date +%s)))
    if [ "$limit" -lt 2 ]; then echo "$wire $1 not run" | tee -a "$out/results" && return; fi
    timeout -k 2 $((limit < each ? limit : each)) "$suite" --ranks "$ranks" --islands "$islands" ${DRIVER:+--driver "$DRIVER"} \
        --library "$library" --filter "$1" >"$file" 2>&1
    code=$? took=$(echo "$start $(date +%s.%N)" | awk '{printf "%.1f", $2 - $1}')
    case $code in
    0) rm "$file" && echo "$wire $1 ok $took s" ;;
    124 | 137) echo "$wire $1 NO END in $took s" ;;
    *) echo "$wire $1 FAILED $took s: $(grep -v '^[0-9]* scenarios' "$file" | tr '\n' ' ' | cut -c 1-600)" ;;
    esac | tee -a "$out/results"
}

names=$(for filter in ${FILTERS:-.}; do "$suite" --list --ranks "$ranks" --islands "$islands" --library "$library" --filter "$filter"; done)
export -f play
export suite library out ranks islands deadline=$(($(date +%s) + ${LIMIT:-120} - SECONDS + began)) each=${EACH:-40}
: >"$out/results"
for wire in ${WIRES:-network}; do
    export wire
    (
        if [ "$wire" = network ]; then export NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1; fi
        echo "$names" | xargs -P "${JOBS:-4}" -I{} bash -c 'play {}'
    )
done
count() { grep -c "$1" "$out/results"; }
echo "$(count ' ok ') ok, $(count FAILED) failed, $(count 'NO END') without an end, $(count 'not run') not run; $ranks ranks, $islands islands;" \
    "$((SECONDS - began)) s"
[ "$(count ' ok ')" -gt 0 ] && ! grep -qv ' ok ' "$out/results"
