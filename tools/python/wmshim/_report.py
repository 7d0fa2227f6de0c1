"""Pictures of a process's memory: the page that ``wmctl report`` writes, for a notebook or a file."""

import html
import os
import subprocess
from typing import List, Optional, Union

from ._errors import Unavailable
from ._library import library_path, wmctl_path

FRAME = (
    '<iframe title="Memory report of wmshim" srcdoc="{page}" style="width:100%;height:{height}px;border:0" '
    'sandbox="allow-scripts"></iframe>'
)


class Report:
    """A page. A notebook shows it; ``save`` writes it."""

    def __init__(self, page: str) -> None:
        """The page as text."""
        self.page = page

    def _repr_html_(self, height: int = 900) -> str:
        """The page in a frame of its own: its style and its script leave the notebook alone."""
        return FRAME.format(page=html.escape(self.page), height=height)

    def save(self, path: "Union[str, os.PathLike[str]]") -> None:
        """Writes the page to a file, which a browser opens."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.page)


def report(
    source: "Optional[Union[int, str, os.PathLike[str]]]" = None, profile: "Optional[Union[str, os.PathLike[str]]]" = None
) -> Report:
    """A report of this process, of another one by its number, or of a file (a recording, a dump); docs/report.md.

    ``profile``: a file that ``WMSHIM_PROFILE`` wrote. Raises Unavailable where there is nothing to show, with the reason.
    """
    if source is None:
        source = os.getpid()
    name = str(source) if isinstance(source, int) else os.fspath(source)
    options: List[str] = [] if profile is None else ["--profile", os.fspath(profile)]
    library = library_path()
    command = [wmctl_path(library), "report", "--output", "-", *options, "--", name]
    run = subprocess.run(
        command, env={**os.environ, "WMSHIM_LIB": library}, capture_output=True, text=True, encoding="utf-8", check=False
    )
    if run.returncode != 0:
        raise Unavailable(run.stderr.strip().removeprefix("wmctl: "))
    return Report(run.stdout)
