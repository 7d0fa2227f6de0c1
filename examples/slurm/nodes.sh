#!/bin/bash
#SBATCH --job-name=wholememory
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --time=00:10:00
# Runs examples/python/nodes.py with a rank for each GPU of two machines: sbatch nodes.sh [PATH_OF_nodes.py]
#
# All ranks of a machine see all of its GPUs (--gpus-per-node and not --gpus-per-task), and share its network namespace.
set -euo pipefail
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_ADDR MASTER_PORT=${MASTER_PORT:-29500} WORLD_SIZE=$SLURM_NTASKS
# Slurm numbers the ranks (SLURM_PROCID), those of a machine (SLURM_LOCALID) and the machines (SLURM_NODEID); the program
# reads the names that torchrun has for them.
srun --kill-on-bad-exit=1 bash -c \
    'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID GROUP_RANK=$SLURM_NODEID exec python3 "$0"' "${1:-nodes.py}"
