"""Sphinx's settings of the site, which scripts/website.py builds from a copy of docs/."""

import os

project = "Trainyard"
author = "Trainyard's authors"
release = os.environ["SITE_VERSION"]
extensions = [
    "myst_parser",
    "autoapi.extension",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
exclude_patterns = ["_package", "_extra"]
html_extra_path = ["_extra"]
# Pages are read on a forge too: CommonMark, and anchors as a forge makes them.
myst_heading_anchors = 4
myst_links_external_new_tab = False
suppress_warnings = [
    "autoapi.python_import_resolution",  # of the modules that autoapi_ignore names
    "misc.highlighting_failure",  # JSON with an ellipsis
    "myst.header",  # the promises begin with deeper headings
]
# The reference is read from the text of the library: neither PyTorch nor Ray is needed.
autoapi_dirs = ["_package/trainyard"]
autoapi_root = "api"
autoapi_add_toctree_entry = False
autoapi_keep_files = False
autoapi_member_order = "bysource"
autoapi_options = ["members", "show-module-summary"]
# Programs and parts for the user's machine are in the reference of `train`.
autoapi_ignore = [
    f"*/trainyard/{name}/*"
    for name in ("access", "client", "jobs", "dev_session", "queue", "quickstart")
]
autoapi_python_class_content = "both"
default_role = "code"
napoleon_numpy_docstring = False
copybutton_exclude = ".linenos, .gp, .go"
html_theme = "pydata_sphinx_theme"
html_title = "Trainyard"
html_search_scorer = "docs/site/scorer.js"
html_static_path = ["_static"]
html_show_copyright = False
html_theme_options = {
    "logo": {"text": "Trainyard"},
    "navbar_start": ["navbar-logo", "version-switcher"],
    "navbar_align": "left",
    "switcher": {"json_url": os.environ["SITE_SWITCHER"], "version_match": release},
    "check_switcher": False,  # scripts/website.py writes it after the build
    "show_version_warning_banner": True,
    "secondary_sidebar_items": ["page-toc"],
    "show_toc_level": 2,
    "footer_start": [],
    "footer_end": ["theme-version"],
}
