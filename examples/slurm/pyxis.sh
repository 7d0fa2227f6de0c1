#!/bin/bash
#SBATCH --job-name=train-in-a-container
#SBATCH --gpus=1
# The same in a container of Pyxis and Enroot: sbatch pyxis.sh IMAGE PROGRAM [ARGUMENTS]
#
# The image knows nothing of wmshim. Pyxis passes the job's environment on, so the preload must name the path inside.
set -euo pipefail
image=$1
shift
srun --container-image="$image" --container-mounts=/opt/wmshim:/opt/wmshim:ro /opt/wmshim/bin/wmctl run -- "$@"
