"""Show a scene in a browser: a web server with one page."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from wsdesc.core.errors import InputError
from wsdesc.view.page import page
from wsdesc.view.scene import SceneView

HOST, PORT = "localhost", 8080
_PORTS = 100  # number of ports that are tried if none is given


def check_server(host: str = HOST, port: int | None = None) -> None:
    """Check that a page can be served, before any work.

    Raises:
        InputError: The port is in use, or the host is not an address of this machine.
    """
    if not isinstance(host, str):
        raise InputError(f"host must be text, not {host!r}")
    if port is not None and (isinstance(port, bool) or not isinstance(port, int)):
        raise InputError(f"port must be a whole number, not {port!r}")
    try:
        with socket.socket(_family(host)) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port or 0))
    except (OSError, OverflowError) as error:
        raise _refused(host, port, error) from error


def serve(
    scene: SceneView, host: str = HOST, port: int | None = None, announce: Callable[[str], None] = print
) -> None:
    """Show a scene until Ctrl-C.

    Args:
        scene: The scene.
        host: Address that the server listens on.
        port: Its port; None takes the first free one from 8080.
        announce: Called with the address once the page is available.
    """
    with PageServer(scene, host, port) as server, suppress(KeyboardInterrupt):
        announce(server.address)
        _wait()


def _wait() -> None:
    threading.Event().wait()


class PageServer:
    """A running server with the page of a scene; a context manager that ends it."""

    def __init__(self, scene: SceneView, host: str = HOST, port: int | None = None) -> None:
        self._server = _bind(host, port, _handler(page(scene).encode("utf-8")))
        name = "localhost" if host in ("0.0.0.0", "::") else host
        self.address = f"http://{f'[{name}]' if ':' in name else name}:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self) -> PageServer:
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _bind(host: str, port: int | None, handler: type[BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
    """Start to listen on a port; without one, on the first free one."""

    class Server(ThreadingHTTPServer):
        address_family = _family(host)
        daemon_threads = True  # a slow browser does not delay the end

    for number in range(PORT, PORT + _PORTS) if port is None else [port]:
        try:
            return Server((host, number), handler)
        except (OSError, OverflowError) as error:
            if port is not None or getattr(error, "errno", None) != errno.EADDRINUSE:
                raise _refused(host, port, error) from error
    raise InputError(f"the ports {PORT} to {PORT + _PORTS - 1} are in use: choose another port")


def _handler(content: bytes) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Answers every request for / with the page."""

        def do_GET(self) -> None:
            is_page = self.path.split("?")[0] == "/"
            body = content if is_page else b"not found"
            self.send_response(200 if is_page else 404)
            self.send_header("Content-Type", "text/html; charset=utf-8" if is_page else "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *message: object) -> None:
            """Print nothing: the terminal is for results."""

    return Handler


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _refused(host: str, port: int | None, error: BaseException) -> InputError:
    if getattr(error, "errno", None) == errno.EADDRINUSE:
        return InputError(f"port {port} is in use: choose another port")
    return InputError(f"{host if port is None else f'{host}:{port}'}: cannot serve a page: {error}")
