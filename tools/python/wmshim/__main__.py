"""``python -m wmshim COMMAND`` is ``wmshim-run COMMAND``."""

from ._run import main

main()
