"""``python -m wmshim`` is ``wmctl``, for environments whose programs are not on the path: ``python -m wmshim run python train.py``."""

from ._run import wmctl

wmctl()
