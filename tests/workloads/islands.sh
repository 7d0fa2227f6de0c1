#!/bin/sh
# Gathers and scatters over islands on one machine. Its GPUs pose as those of several: WholeMemory beside RAPIDS' library and beside NCCL
# alone, over sockets of the loopback interface and over the links between GPUs, the upper bound. Run from the repository root after
# `make dist`. Rows are printed as they come; with two GPUs it takes less than 200 s.
#
#   tests/workloads/islands.sh [FOLDER]       SKIP="network links" leaves a wire out
#
# BESIDE is RAPIDS' libwholegraph.so, with librmm.so and librapids_logger.so beside it or in LD_LIBRARY_PATH; NCCL a folder with libnccl.so.2
# (default: PyTorch's). BENCH and LIBRARY are the program and the library to measure, RANKS and ISLANDS the ranks (default: one a GPU) and
# the islands that they are dealt to (default: one a rank), ROWS their bytes, NUMBERS the row numbers (as `uniform,zipf`), REPEAT the turns;
# more of them need longer limits: SECONDS_NETWORK, SECONDS_LINKS.
set -u
bench=${BENCH:-dist/dev/bench}
out=${1:-$(mktemp -d)}
ranks=${RANKS:-${ISLANDS:-$(nvidia-smi -L | wc -l)}}
islands=${ISLANDS:-$ranks}
if [ "$islands" -lt 2 ]; then echo "islands.sh: needs two islands or more, there is $islands: RANKS=4 ISLANDS=2 has them on two GPUs" >&2 && exit 2; fi
nccl=${NCCL:-$(python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0] + "/lib")')} || exit 2
export LD_LIBRARY_PATH="${BESIDE:+$(dirname "$BESIDE"):}$nccl${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
mkdir -p "$out" || exit 2

wire() { # name, seconds, arguments...
    name=$1 limit=$2
    shift 2
    case " ${SKIP:-} " in *" $name "*) return ;; esac
    printf '\n== %s, at most %s s\n' "$name" "$limit"
    began=$(date +%s)
    { timeout -k 5 "$limit" "$bench" wholememory --ranks "$ranks" --islands "$islands" --wire "$name" \
        --rows "${ROWS:-128,512,2048}" --table-gib 1 --gather-mib 512 --seconds 0.05 --repeat "${REPEAT:-3}" --patience 20 \
        ${LIBRARY:+--library "$LIBRARY"} ${NUMBERS:+--numbers "$NUMBERS"} "$@" 2>&1; echo "$name: exit $?"; } | tee "$out/$name.txt"
    echo "$name: $(($(date +%s) - began)) s"
}

# A library that does not begin ends the run: the other one is measured alone then.
both() { # name, seconds
    wire "$1" "$2" ${BESIDE:+--beside "$BESIDE"}
    if [ -n "${BESIDE:-}" ] && ! grep -qs '^gather' "$out/$1.txt"; then wire "$1" "$2"; fi
}

(export NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo && both network "${SECONDS_NETWORK:-130}")
both links "${SECONDS_LINKS:-65}"
