#!/bin/sh
# Gathers and scatters of two GPUs or more of one machine, WholeMemory beside RAPIDS' library in turns: rows that repeat, odd rows, conversions,
# rows on the host, calls of few rows. Run from the repository root after `make dist`. Rows are printed as they come; all steps together take
# 150 s at most, because each is ended for its time.
#
#   tests/workloads/one_machine.sh [FOLDER]       SKIP="conversions host" leaves steps out; FOLDER gets the output of each step
#
# BESIDE is RAPIDS' libwholegraph.so, with librmm.so and librapids_logger.so beside it or in LD_LIBRARY_PATH; NCCL a folder with libnccl.so.2
# (default: PyTorch's). BENCH and LIBRARY are the program and the library to measure. TABLE and CALL are the GiB of a table and the MiB of a
# call; more arguments for the program are in MORE.
set -u
bench=${BENCH:-dist/dev/bench}
out=${1:-$(mktemp -d)}
table=${TABLE:-4} call=${CALL:-256}
nccl=${NCCL:-$(python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0] + "/lib")')} || exit 2
export LD_LIBRARY_PATH="${BESIDE:+$(dirname "$BESIDE"):}$nccl${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
mkdir -p "$out" || exit 2

measure() { # name, seconds, arguments...
    name=$1 limit=$2
    shift 2
    case " ${SKIP:-} " in *" $name "*) return ;; esac
    printf '\n== %s, at most %s s\n' "$name" "$limit"
    began=$(date +%s)
    # shellcheck disable=SC2086
    { timeout -k 2 "$limit" "$bench" wholememory ${LIBRARY:+--library "$LIBRARY"} ${BESIDE:+--beside "$BESIDE"} --patience 20 --repeat 2 \
        --table-gib "$table" --host-gib "${HOST:-2}" "$@" ${MORE:-} 2>&1; echo "$name: exit $? (124: no end in time)"; } | tee "$out/$name.txt"
    echo "$name: $(($(date +%s) - began)) s"
}

measure device 60 --only device --rows 512,100 --numbers uniform,zipf,sorted,one --seconds 0.03 --gather-mib "$call"
measure calls 30 --only calls --rows 512 --seconds 0.02 --gather-mib "$call"
measure conversions 25 --only device --rows 512 --types half:float,int8:int,float:half --seconds 0.03 --gather-mib "$call"
# A scatter of rows that repeat takes seconds for each call of the other library's.
measure host 25 --only host --rows 512 --numbers uniform,sorted,zipf --seconds 0.03 --gather-mib $((call / 4))
