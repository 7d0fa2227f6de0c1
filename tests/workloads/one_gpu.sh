#!/bin/sh
# The workloads that need one GPU, except the programs of matrix.py and guard.py. Timed programs run
# first and alone; then the stress test runs, and beside it all that is not timed. About 15 minutes;
# run from the repository root after `make dist`. FOLDER gets the output of each step.
#
#   tests/workloads/one_gpu.sh [FOLDER]          STRESS=600 seconds of the stress test, SKIP="turns mps" leaves out, LATENCY=path
set -u
here=$(dirname "$0")
. "$here/steps.sh"

preloaded() { # command...
    env LD_PRELOAD="$library" "$@"
}

for trace in gnn gpt_varlen hf_generate; do
    step "replay_$trace" 60 dist/bin/wmctl replay --trace "tests/traces/$trace.trace.gz" --driver real --baseline async
    step "periods_$trace" 60 dist/bin/wmctl replay --trace "tests/traces/$trace.trace.gz" --driver real --periods 8
done
# A call's time, bare and under the shim. `cargo build --release -p latency` makes the program.
if [ -x "$latency" ]; then
    step latency_bare 15 "$latency"
    step latency_shim 15 env LD_PRELOAD="$library" "$latency"
fi
step turns 280 env ITERS="${ITERS:-7}" python3 "$here/turns.py" hf_generate.py --ways bare,full --copies 2 --json "$out/turns.json"

echo "stress, ${STRESS:-600} s, beside what follows ..." >&2
preloaded WMSHIM_DEVICE_LIMIT=16GiB dist/bin/stress --seconds "${STRESS:-600}" --memory 16384 --peak 1.3 --seed 3 \
    >"$out/stress.txt" 2>"$out/stress.err" &
stress=$!
step bare 150 dist/bin/conformance --threads 12 --save "$out/bare.json"
step shim 150 env LD_PRELOAD="$library" dist/bin/conformance --threads 12 --save "$out/shim.json"
step compared 10 dist/bin/conformance --compare "$out/bare.json" "$out/shim.json" --same-machine \
    --accept tools/conformance/data/shim-differences.tsv
step full 90 env WMSHIM_OVERFLOW=off WMSHIM_DEVICE_LIMIT=1GiB dist/bin/wmctl run --stats --quiet -- \
    dist/bin/stress --seed 3 --seconds 45 --memory 1024 --peak 1.1
step mps 240 "$here/mps.sh" "$out/mps"
step pytorch 400 python3 "$here/pytorch.py" --log "$out/pytorch.log"
step reserved 400 python3 "$here/reserved.py" --log "$out/reserved.log"

printf '\n== stress\n'
wait $stress
code=$?
cat "$out/stress.txt"
if [ $code -ne 0 ]; then echo "stress: exit $code" && tail -n 20 "$out/stress.err"; fi
