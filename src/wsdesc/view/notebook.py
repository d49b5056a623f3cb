"""Results in a notebook: a page in a frame, or a picture where scripts are blocked."""

from __future__ import annotations

import html
from contextlib import suppress

from wsdesc.core.errors import WSDescError
from wsdesc.view.page import page
from wsdesc.view.results import reconstruction_scene, registration_scene
from wsdesc.view.scene import SceneView
from wsdesc.view.snapshot import snapshot

_MAX_POINTS = 24_000  # a notebook stores them in its file


def notebook_page(result: object) -> str | None:
    """Return a result as HTML for a notebook; None if there is nothing to show."""
    scene = _notebook_scene(result)
    if scene is None:
        return None
    # The frame separates the page's script from the notebook.
    document = html.escape(page(scene), quote=True)
    style = "width: 100%; height: 520px; border: 1px solid #ddd"
    return f'<iframe srcdoc="{document}" sandbox="allow-scripts" style="{style}"></iframe>'


def notebook_picture(result: object) -> bytes | None:
    """Return a result as a PNG, for viewers that run no scripts; None if there is nothing to show."""
    scene = _notebook_scene(result)
    return None if scene is None else snapshot(scene)


def _notebook_scene(result: object) -> SceneView | None:
    from wsdesc.reconstruction.result import Reconstruction
    from wsdesc.registration.result import Registration

    with suppress(WSDescError):
        if isinstance(result, Registration):
            return registration_scene(result, max_points=_MAX_POINTS)
        if isinstance(result, Reconstruction):
            return reconstruction_scene(result, max_points=_MAX_POINTS)
    return None
