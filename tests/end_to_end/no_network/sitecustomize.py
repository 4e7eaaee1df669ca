"""Ends Python processes that access the network; local connections are allowed."""

import os
import socket

HERE = ("localhost", "127.0.0.1", "::1", socket.gethostname(), None, "", "0.0.0.0")


def _only_here(function):
    def checked(*arguments, **options):
        # getaddrinfo(host, …), but socket.connect(self, (host, port))
        address = arguments[1] if isinstance(arguments[0], socket.socket) else arguments[0]
        host = address[0] if isinstance(address, tuple) else address
        if host not in HERE and not str(host).startswith("/"):
            os.write(2, f"this turned to the network: {host}\n".encode())
            os._exit(97)
        return function(*arguments, **options)

    return checked


socket.getaddrinfo = _only_here(socket.getaddrinfo)
for _name in ("connect", "connect_ex"):
    setattr(socket.socket, _name, _only_here(getattr(socket.socket, _name)))
