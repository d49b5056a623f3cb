"""The server of a page."""

import socket
import urllib.error
import urllib.request

import pytest

from wsdesc.core.errors import InputError
from wsdesc.view import server
from wsdesc.view.page import page
from wsdesc.view.server import PORT, PageServer, check_server, serve


def get(address):
    with urllib.request.urlopen(address, timeout=20) as answer:
        return answer.read().decode("utf-8")


def test_page_is_served_and_the_port_is_free_afterwards(pair):
    with PageServer(pair) as served:
        assert get(served.address) == page(pair)
        assert get(f"{served.address}/?reload") == page(pair)
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(f"{served.address}/etc/passwd")
    with pytest.raises(urllib.error.URLError):
        get(served.address)


def test_the_next_free_port_is_taken(pair):
    with PageServer(pair) as first, PageServer(pair) as second:
        ports = [int(served.address.rsplit(":", 1)[1]) for served in (first, second)]
        assert PORT <= ports[0] < ports[1]


def test_all_addresses_are_announced_as_localhost(pair):
    with PageServer(pair, "0.0.0.0") as served:
        assert served.address.startswith("http://localhost:")


def test_used_port_is_refused(pair):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for attempt in (lambda: check_server(port=port), lambda: PageServer(pair, port=port)):
            with pytest.raises(InputError, match=f"port {port} is in use"):
                attempt()


@pytest.mark.parametrize(("host", "port"), [("192.0.2.1", None), ("localhost", 70_000), ("no such host", 1)])
def test_impossible_addresses_are_refused(pair, host, port):
    for attempt in (lambda: check_server(host, port), lambda: PageServer(pair, host, port)):
        with pytest.raises(InputError, match="cannot serve a page"):
            attempt()


@pytest.mark.parametrize(("host", "port"), [(None, 8080), ("localhost", "8080"), ("localhost", True)])
def test_wrong_types_of_the_address_are_refused(host, port):
    with pytest.raises(InputError, match=r"host must be text|port must be a whole number"):
        check_server(host, port)


def test_serve_ends_with_ctrl_c(pair, monkeypatch):
    def interrupt():
        raise KeyboardInterrupt

    monkeypatch.setattr(server, "_wait", interrupt)
    announced = []
    serve(pair, announce=lambda address: announced.append((address, get(address))))
    ((address, text),) = announced
    assert text == page(pair)
    with pytest.raises(urllib.error.URLError):
        get(address)


def test_ctrl_c_right_after_the_address_ends_the_server(pair):
    announced = []

    def interrupt(address):
        announced.append(address)
        raise KeyboardInterrupt

    serve(pair, announce=interrupt)
    with pytest.raises(urllib.error.URLError):
        get(announced[0])
