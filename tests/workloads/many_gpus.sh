#!/bin/sh
# Programs for four or eight GPUs: islands of several GPUs, moves beside the memory of siblings, WholeMemory beside RAPIDS' library, copies over
# all links, NCCL, the random judge. Run from the repository root after `make dist`. Each part takes less than eight minutes; FOLDER gets the
# output of each step. On two GPUs `islands` has both ranks of an island on one.
#
#   tests/workloads/many_gpus.sh islands|moves|wholememory|copies|order [FOLDER]       SKIP="training graphsage" leaves steps out
#
# BESIDE is a folder with the unpacked wheels of libwholegraph, pylibwholegraph, librmm and rapids_logger; NCCL a folder with libnccl.so.2
# (default: PyTorch's). Without BESIDE only wmshim is measured.
set -u
part=${1:?say islands, moves, wholememory, copies or order}
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

# Islands of as many GPUs as there can be, then of fewer.
islands() {
    shapes="$gpus:2"
    [ "$gpus" -ge 4 ] || shapes="$((gpus * 2)):2"
    [ "$gpus" -lt 8 ] || shapes="8:2 8:4"
    limit=$((440 / $(echo "$shapes" | wc -w)))
    for shape in $shapes; do
        ranks=${shape%:*} islands=${shape#*:}
        BESIDE=${BESIDE:+$BESIDE/libwholegraph/lib64/libwholegraph.so} RANKS=$ranks ISLANDS=$islands ROWS=64,512,4096 NUMBERS=uniform,zipf REPEAT=2 \
            SECONDS_NETWORK=$((limit * 3 / 5)) SECONDS_LINKS=$((limit * 2 / 5)) SKIP="${SKIP:-}$([ "$ranks" -le "$gpus" ] || echo " links")" \
            step "islands_${ranks}_$islands" "$limit" sh "$here/islands.sh" "$out/islands_${ranks}_$islands"
        rails
    done
}

# Which ranks one sends rows to, as NCCL tells it: those of its rail.
rails() {
    logs=$out/rails_${ranks}_$islands && mkdir -p "$logs"
    nccl=${NCCL:-$(python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0] + "/lib")')}
    step "rails_${ranks}_$islands" 30 env LD_LIBRARY_PATH="$nccl${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo \
        NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=COLL NCCL_DEBUG_FILE="$logs/%p.log" dist/dev/bench wholememory --ranks "$ranks" --islands "$islands" \
        --rows 512 --table-gib 1 --gather-mib 64 --seconds 0.001 --repeat 1 --patience 20
    python3 "$here/rails.py" "$logs" --islands "$islands"
}

# The graph network at 1.44 and 2.17 times the device, over more and more siblings, then over the host alone.
moves() {
    for siblings in 1 3 7; do
        [ "$gpus" -gt $siblings ] || continue
        CUDA_VISIBLE_DEVICES=$(seq -s, 0 $siblings) WMSHIM_OVERFLOW=peer,host outgrown "moves_$siblings"
    done
    CUDA_VISIBLE_DEVICES=0 WMSHIM_OVERFLOW=host outgrown moves_host
}

outgrown() { # name
    # Expandable segments go to the host.
    WMSHIM_TORCH_ALLOCATOR=native SHARE="69 46" LONGEST=9 BARE=3 step "$1" 115 sh "$here/outgrow.sh" gcn
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
islands | moves | wholememory | copies | order) $part ;;
*) echo "many_gpus.sh: $part is no part: say islands, moves, wholememory, copies or order" >&2 && exit 2 ;;
esac
