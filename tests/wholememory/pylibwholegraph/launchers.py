"""Hazard (source drift): the example for several machines does not run with torchrun or Slurm as its page says.

PyTorch has simulated GPUs (`cargo xtask rapids`). Two machines are two names on this one; NCCL is simulated. Slurm's own programs are stand-ins, which give
each rank the variables that Slurm does.
"""

import os
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
PROGRAM = EXAMPLES / "python" / "nodes.py"
SAID = "{} ranks, 2 a machine, have read rows from all parts: True"
MACHINES = 2
# PyTorch 1.13's torchrun does not find its own default, no redirection, in Python 3.11: name it for a rank that there is not.
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--redirects", "9:1", "--tee", "9:1"]

# The name of the first machine.
SCONTROL = "#!/bin/bash\n[ \"$*\" = 'show hostnames machine[0-1]' ] && echo localhost\n"
# Two tasks on each of two machines.
SRUN = """#!/bin/bash
[ "$1" = --kill-on-bad-exit=1 ] && shift
for ((task = 0; task < SLURM_NTASKS; task++)); do
    node=$((task / 2))
    WMSHIM_WHOLEMEMORY_NODE=machine$node SIMCUDA_MACHINE=$node SLURM_PROCID=$task SLURM_LOCALID=$((task % 2)) SLURM_NODEID=$node "$@" &
done
failed=0
for ((task = 0; task < SLURM_NTASKS; task++)); do wait -n || failed=1; done
exit $failed
"""


def free_port():
    """A port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]


class LauncherTest(unittest.TestCase):
    def test_torchrun_on_each_of_two_machines(self):
        words = ["--nnodes", str(MACHINES), "--nproc_per_node", "2", "--rdzv_backend", "c10d"]
        words += ["--rdzv_endpoint", f"localhost:{free_port()}", PROGRAM]
        machines = []
        for number in range(MACHINES):
            environment = {**os.environ, "WMSHIM_WHOLEMEMORY_NODE": f"machine{number}", "SIMCUDA_MACHINE": str(number)}
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            machines.append(subprocess.Popen([*TORCHRUN, *words], env=environment, **pipes))
        ended = [(*machine.communicate(), machine.returncode) for machine in machines]
        self.assertEqual([code for *_, code in ended], [0] * MACHINES, ended)
        self.assertEqual("".join(said for said, *_ in ended).strip(), SAID.format(2 * MACHINES))

    def test_slurm_on_two_machines(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in [("scontrol", SCONTROL), ("srun", SRUN)]:
                path = Path(folder) / name
                path.write_text(text)
                path.chmod(0o755)
            ours = {"PATH": f"{folder}:{os.environ['PATH']}", "MASTER_PORT": str(free_port())}
            slurms = {"SLURM_JOB_NODELIST": "machine[0-1]", "SLURM_NTASKS": str(2 * MACHINES)}
            script = EXAMPLES / "slurm" / "nodes.sh"
            environment = {**os.environ, **ours, **slurms}
            outcome = subprocess.run([script, PROGRAM], env=environment, capture_output=True, text=True, check=False)
        self.assertEqual((outcome.returncode, outcome.stdout.strip()), (0, SAID.format(4)), outcome.stderr)


if __name__ == "__main__":
    unittest.main()
