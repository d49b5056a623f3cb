"""Display of results in notebooks."""

from __future__ import annotations

from importlib import import_module


class NotebookDisplay:
    """Mixin of results that Jupyter shows as an interactive page, or as a picture where scripts are blocked.

    It imports `wsdesc.view` only for the display, so that results do not depend on that package.
    """

    def _repr_html_(self) -> str | None:
        html: str | None = import_module("wsdesc.view.notebook").notebook_page(self)
        return html

    def _repr_png_(self) -> bytes | None:
        png: bytes | None = import_module("wsdesc.view.notebook").notebook_picture(self)
        return png
