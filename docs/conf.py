"""How the site is built: `make docs` writes it to build/docs/html, and any warning ends the build."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from apiece import __version__

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))

from making import algorithms, reference  # noqa: E402

BUILT = DOCS.parent / "build" / "docs"

project, author = "apiece", "the authors of apiece"
version = release = __version__
extensions = ["myst_nb"]
exclude_patterns = ["results/*.notes.md", "results/*/*.notes.md", "**/.ipynb_checkpoints", "making"]
nitpicky = True

# pages that the code itself gives; git ignores them
algorithms.write(DOCS / "algorithms")
reference.write(DOCS / "reference")

# pages are Markdown that a code host shows too: links name files, and anchors are made of headings
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "deflist"]

# notebooks are executed when they changed; NOTEBOOKS=off leaves them as they are
nb_execution_mode = os.environ.get("NOTEBOOKS", "cache")
nb_execution_cache_path = str(BUILT / "jupyter-cache")
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_merge_streams = True
# a notebook that was not executed does not say that its cells are IPython's, so a line with ! is not colored
suppress_warnings = ["misc.highlighting_failure"] if nb_execution_mode == "off" else []

html_theme = "furo"
html_title = "apiece"
html_static_path = []
html_show_sphinx = html_show_copyright = False
html_copy_source = False

# a folder of the contents may have no page so far
logging.getLogger("sphinx.sphinx.directives.other").addFilter(lambda of: getattr(of, "subtype", "") != "empty_glob")
