#!/bin/sh
# All programs about copies that need GPUs; with one GPU, those that need no sibling. Run from the repository root after `make dist`.
# Each table is printed when it is there, also that of a step which was ended for its time; progress goes to standard error. FOLDER
# gets the output of each step. All steps together take less than 900 seconds.
#
#   tests/workloads/copies.sh [FOLDER]          GB=8 size of the checkpoint, REPEAT=2 runs each way, SKIP="bench programs" leaves out, LATENCY=path
set -u
here=$(dirname "$0")
. "$here/steps.sh"

step own 120 dist/bin/wmctl bench copy --own --largest 4096
step pageable 200 python3 "$here/copies.py" --only pageable --links default --repeat "${REPEAT:-2}" --limit 95 --total 195
if [ "$(nvidia-smi -L | wc -l)" -lt 2 ]; then exit; fi
step bench 50 dist/bin/wmctl bench copy --largest 1024
step ranks 75 dist/dev/bench ranks
step shapes 60 dist/dev/bench shapes --largest 1024
step doctor 15 dist/bin/wmctl doctor
# A small copy, bare and behind each setting. `cargo build --release -p latency` makes the program.
if [ -x "$latency" ]; then
    step latency_bare 15 "$latency"
    step latency_off 15 env LD_PRELOAD="$library" WMSHIM_MULTIPATH=off "$latency"
    step latency_own 15 env LD_PRELOAD="$library" "$latency"
    step latency_auto 15 env LD_PRELOAD="$library" WMSHIM_MULTIPATH=auto "$latency"
fi
step programs 250 python3 "$here/copies.py" --only matmul,checkpoint,loader --gb "${GB:-8}" --repeat "${REPEAT:-2}" --total 240
