"""Nothing turns to the network unless it is asked to: all commands of these tests run off it."""

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
def test_a_command_that_turns_to_the_network_is_found_out(code):
    done = run(sys.executable, "-c", f"try: {code}\nexcept OSError: pass", check=False)
    assert done.returncode == 97
    assert "this turned to the network" in done.stderr


def test_the_machine_itself_may_be_talked_to():
    code = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname())"
    )
    run(sys.executable, "-c", code)
