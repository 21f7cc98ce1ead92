"""The site: `make docs`. It is built from the pages as they lie in the repository, offline; a warning is an error.

Its root is the repository, so that a link between README.md, docs/, notebooks/ and the sources holds here and on
GitHub alike.
"""

project = "minivllm"
copyright = "the authors of minivllm, Apache-2.0"
root_doc = "docs/index"
include_patterns = ["README.md", "docs/*.md", "kernels/**.md", "traces/**.md"]
include_patterns += ["notebooks/README.md", "notebooks/[01]*.ipynb"]
include_patterns += ["notebooks/labs/**README.md", "notebooks/labs/**.ipynb"]
exclude_patterns = [".*", "build", "minivllm", "minivllm.egg-info", "tests", "traces/out", "**/.ipynb_checkpoints"]

extensions = ["myst_nb", "sphinxcontrib.mermaid"]
nb_execution_mode = "off"  # notebooks are shown with the outputs that they were committed with
myst_heading_anchors = 4  # GitHub's anchors
myst_fence_as_directive = ["mermaid"]
suppress_warnings = ["myst.header"]  # a generated page may begin a new part with a top heading

html_theme = "furo"
html_title = "minivllm"
html_copy_source = False
html_show_copyright = False
