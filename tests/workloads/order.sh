#!/bin/sh
# The order of memory (docs/dev/ordering.md) on GPUs: timed programs first, then programs that pass or fail, then the random judge.
# On one GPU, Llama's tokens and single calls are timed; on two, copies between them are checked. Run from the repository root after
# `make dist` and `cargo build --release -p latency`. FOLDER gets the output of each step.
#
#   tests/workloads/order.sh 1|2 [FOLDER]        GPUs; ORACLE=300 seconds of the judge, SEED=1 where it begins, SKIP="turns latency" leaves out
set -u
gpus=${1:?one GPU or two: say 1 or 2}
shift
here=$(dirname "$0")
. "$here/steps.sh"
seconds=${ORACLE:-300}

if [ "$gpus" = 1 ]; then
    step turns 220 env ITERS="${ITERS:-4}" python3 "$here/turns.py" hf_generate.py --ways bare,pass,full --copies "${COPIES:-3}" --json "$out/turns.json"
    for streams in non-blocking blocking legacy mixed; do
        step "latency_$streams" 15 "$latency" --streams "$streams"
        step "latency_${streams}_shim" 15 env LD_PRELOAD="$library" "$latency" --streams "$streams"
    done
    step latency_fan 20 "$latency" --fan 64 --bytes 32768
    step latency_fan_shim 20 env LD_PRELOAD="$library" "$latency" --fan 64 --bytes 32768
fi
step bare 150 dist/bin/conformance --threads 8 --save "$out/bare.json"
step shim 150 env LD_PRELOAD="$library" dist/bin/conformance --threads 8 --save "$out/shim.json"
step compared 10 dist/bin/conformance --compare "$out/bare.json" "$out/shim.json" --same-machine \
    --accept tools/conformance/data/shim-differences.tsv
if [ "$gpus" = 2 ]; then
    step between 120 "$here/between.sh"
    step all_reduce 120 env LD_PRELOAD="$library" python3 "$here/all_reduce.py"
    step torch_share 120 env LD_PRELOAD="$library" WMSHIM_TORCH_ALLOCATOR=native python3 "$here/torch_share.py"
fi
# Alone: programs that share the device with others wait for their turn on it, and take it for the driver's way.
step oracle $((seconds + 60)) dist/bin/oracle --seconds "$seconds" --seed "${SEED:-1}" --devices "$gpus" --green --failures 3
