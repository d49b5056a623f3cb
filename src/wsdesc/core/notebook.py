"""Results that show themselves in a notebook."""

from __future__ import annotations

from importlib import import_module


class NotebookDisplay:
    """Show a result in Jupyter: as a page, and as a picture where scripts are blocked.

    The drawing code is found by name when it is needed: results must not depend on the `view` package.
    """

    def _repr_html_(self) -> str | None:
        html: str | None = import_module("wsdesc.view.results").notebook_page(self)
        return html

    def _repr_png_(self) -> bytes | None:
        png: bytes | None = import_module("wsdesc.view.results").notebook_picture(self)
        return png
