#!/bin/bash
#SBATCH --job-name=train
#SBATCH --gpus=1
# One job under wmshim, on a cluster without the TaskProlog: sbatch train.sh PROGRAM [ARGUMENTS]
#
# At the end each task's peaks are in the job's output, also if the job was cancelled or killed.
set -euo pipefail
srun /opt/wmshim/bin/wmctl run --stats -- "$@"
