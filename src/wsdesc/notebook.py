"""Results that show themselves in a notebook."""

from __future__ import annotations


class InNotebook:
    """What Jupyter asks of a value to be shown: a page, and a picture for where no script may run."""

    def _repr_html_(self) -> str | None:
        from wsdesc.show import small_page  # what draws is brought when it is drawn

        return small_page(self)

    def _repr_png_(self) -> bytes | None:
        from wsdesc.show import small_picture

        return small_picture(self)
