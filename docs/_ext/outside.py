"""Links to files beside docs/ become their names: the site has pages, the repository has the files.

MyST takes a link to a source file for a download, and one to a page beside docs/ for a mistake. Whoever
reads the site may not have the repository, so the words of such a link stay, and the path after them
where they do not say it.
"""

from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform


class Outside(SphinxTransform):
    """Runs before Sphinx gathers what is to be downloaded."""

    default_priority = 5

    def apply(self, **kwargs: object) -> None:
        """Every link to a file or a folder beside docs/; a link that leads nowhere stays a warning."""
        docs = Path(self.env.srcdir)
        for kind in (addnodes.download_reference, addnodes.pending_xref):
            for link in list(self.document.findall(kind)):
                target = self.target(link)
                beside = not target.is_relative_to(docs) and target.is_relative_to(docs.parent)
                if link["reftype"] == "myst" and beside and target.exists():
                    link.replace_self(named(link, target.relative_to(docs.parent).as_posix()))

    def target(self, link: nodes.Element) -> Path:
        """Where a link leads, as a path."""
        folder = Path(self.env.doc2path(self.env.docname)).parent
        # MyST gives a page by its path without the ending.
        ending = ".md" if link.get("refdomain") == "doc" else ""
        return (folder / (link["reftarget"].partition("#")[0] + ending)).resolve()


def named(link: nodes.Element, name: str) -> list[nodes.Node]:
    """The words of a link, and the file's name where they lack it."""
    words, children = link.astext(), [child.deepcopy() for child in link[0].children]
    if not name.endswith(words):
        return [*children, nodes.Text(" ("), nodes.literal(name, name), nodes.Text(")")]
    return children if isinstance(children[0], nodes.literal) else [nodes.literal(words, words)]


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_transform(Outside)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
