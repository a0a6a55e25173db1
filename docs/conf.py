"""The site: these pages as they are, with nothing fetched while it is built or read (`make docs`)."""

import sys
from pathlib import Path

from recollect._version import __version__

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

project = "recollect"
html_title = f"recollect {__version__}"
language = "en"
extensions = ["myst_parser", "mathml", "outside"]
exclude_patterns = ["_ext"]
highlight_language = "none"  # blocks without a language are formulas and pictures made of letters

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
myst_update_mathjax = False  # there is none

html_theme = "furo"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_theme_options = {"footer_icons": []}
