#!/bin/sh
# Programs for four or eight GPUs: WholeMemory beside RAPIDS' library, copies over all links, NCCL, the random judge. Run from the repository root
# after `make dist`. Each part takes less than eight minutes; FOLDER gets the output of each step.
#
#   tests/workloads/many_gpus.sh wholememory|copies|order [FOLDER]       SKIP="training graphsage" leaves steps out
#
# BESIDE is a folder with the unpacked wheels of libwholegraph, pylibwholegraph, librmm and rapids_logger; NCCL a folder with libnccl.so.2
# (default: PyTorch's). Without BESIDE only wmshim is measured.
set -u
part=${1:?say wholememory, copies or order}
shift
here=$(dirname "$0")
. "$here/steps.sh"
gpus=${GPUS:-$(nvidia-smi -L | wc -l)}
if [ "$gpus" -lt 2 ]; then echo "many_gpus.sh: needs two GPUs or more, there is $gpus" >&2 && exit 2; fi

bench() { # name, seconds, arguments...
    name=$1 limit=$2
    shift 2
    step "$name" "$limit" dist/dev/bench wholememory --patience 30 --seconds 0.1 --repeat 2 ${beside:+--beside "$beside"} "$@"
}

wholememory() {
    beside=${BESIDE:+$BESIDE/libwholegraph/lib64/libwholegraph.so}
    if [ -n "$beside" ]; then
        nccl=${NCCL:-$(python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0] + "/lib")')}
        export LD_LIBRARY_PATH="$BESIDE/librmm/lib64:$BESIDE/rapids_logger/lib64:$nccl${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    fi
    bench device 90 --only device
    bench host 60 --only host --rows 64,512,4096
    bench training 30 --only training
    bench cached 30 --only cached
    # 100 GB and 800 GB in all: the ranks of both libraries are there at once, so each is measured by itself where two tables do not fit.
    bench device_100_gb 60 --only device --rows 128,512 --table-gib 93
    if [ "$gpus" -ge 8 ]; then
        theirs=$beside beside=
        bench device_800_gb 60 --only device --rows 128,512 --table-gib 745
        if [ -n "$theirs" ]; then bench device_800_gb_beside 60 --only device --rows 128,512 --table-gib 745 --library "$theirs"; fi
    fi
    step graphsage 90 python3 "$here/graphsage.py" --limit 80 --json "$out/graphsage.json" ${BESIDE:+--theirs "$BESIDE"} \
        --ways "ours,host-cpu${BESIDE:+,theirs}"
}

copies() {
    step copy 60 dist/bin/wmctl bench copy --largest 1024
    step ranks 120 dist/dev/bench ranks
    step programs 150 python3 "$here/copies.py" --only matmul,checkpoint --gb "${GB:-30}" --repeat 1 --total 140
    step collectives 50 python3 "$here/collectives.py" --json "$out/collectives.json"
    step collectives_shim 50 env LD_PRELOAD="$library" python3 "$here/collectives.py" --json "$out/collectives_shim.json"
}

# Each program of the judge has two devices: all devices in pairs, side by side.
judges() {
    half=$((gpus / 2)) pair=0
    while [ $pair -lt $half ]; do
        echo "oracle on GPUs $pair and $((pair + half)), ${ORACLE:-300} s ..." >&2
        CUDA_VISIBLE_DEVICES=$pair,$((pair + half)) timeout -k 5 $((${ORACLE:-300} + 30)) dist/bin/oracle --seconds "${ORACLE:-300}" \
            --seed $((${SEED:-500000} + pair * 10000)) --devices 2 --copies --green --failures 3 >"$out/oracle_$pair.txt" 2>&1 &
        pair=$((pair + 1))
    done
    wait
    tail -n 5 "$out"/oracle_*.txt
}

order() {
    judges
    # The cases about several devices; FILTER= for the whole suite, which takes longer.
    step bare 70 dist/bin/conformance --threads 16 --filter "${FILTER-peer}" --save "$out/bare.json"
    step shim 70 env LD_PRELOAD="$library" dist/bin/conformance --threads 16 --filter "${FILTER-peer}" --save "$out/shim.json"
    step compared 10 dist/bin/conformance --compare "$out/bare.json" "$out/shim.json" --same-machine \
        --accept tools/conformance/data/shim-differences.tsv
}

case $part in
wholememory | copies | order) $part ;;
*) echo "many_gpus.sh: $part is no part: say wholememory, copies or order" >&2 && exit 2 ;;
esac
