#!/bin/sh
# Runs commands on the GPUs of a machine, one at a time on each, in the order given. A command sees one GPU. What it prints is FOLDER/N.txt, N
# from 1, and a line tells when it ends. Once SECONDS have passed, none is begun, and those that run get the signal to end.
#
#   tests/workloads/lanes.sh FOLDER SECONDS COMMAND...     GPUS="0 1", by default all
set -u
[ $# -gt 2 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
folder=$1 end=$(($(date +%s) + $2))
shift 2
mkdir -p "$folder" || exit 1
echo 0 >"$folder/next"

# The number of the next command; nothing if there is none.
take() {
    flock "$folder/next" sh -c 'next=$(($(cat "$1") + 1)); [ $next -gt "$2" ] || { echo $next >"$1"; echo $next; }' - "$folder/next" "$1"
}

lane() { # GPU COMMAND...
    gpu=$1
    shift
    while left=$((end - $(date +%s))) && [ $left -gt 0 ] && number=$(take $#) && [ -n "$number" ]; do
        eval "command=\${$number}"
        begin=$(date +%s)
        CUDA_VISIBLE_DEVICES=$gpu timeout -k 20 "$left" sh -c "$command" >"$folder/$number.txt" 2>&1
        echo "$number on GPU $gpu: exit $?, $(($(date +%s) - begin)) s: $command"
    done
}

for gpu in ${GPUS:-$(nvidia-smi --query-gpu=index --format=csv,noheader)}; do
    lane "$gpu" "$@" &
done
wait
