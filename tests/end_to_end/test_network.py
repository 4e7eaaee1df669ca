"""Nothing accesses the network unless requested: all commands of these tests run without it."""

import sys

import pytest
from commands import run


@pytest.mark.parametrize(
    "code",
    [
        "import socket; socket.create_connection(('192.0.2.1', 80), 1)",
        "import socket; socket.socket().connect_ex(('192.0.2.1', 80))",
        "import urllib.request; urllib.request.urlopen('http://example.invalid')",
    ],
)
def test_a_command_that_accesses_the_network_is_detected(code):
    done = run(sys.executable, "-c", f"try: {code}\nexcept OSError: pass", check=False)
    assert done.returncode == 97
    assert "this turned to the network" in done.stderr


def test_local_connections_are_allowed():
    code = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname())"
    )
    run(sys.executable, "-c", code)
