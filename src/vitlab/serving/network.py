"""Listen at an address, and serve an application there until a signal comes."""

import asyncio
import errno
import socket
from ipaddress import ip_address
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from vitlab.errors import ConfigError

LOCAL = "localhost"
MOST_CONNECTIONS = 1000
HEAD_SECONDS = 5  # in which the head of a request must arrive


class ImpatientProtocol(H11Protocol):
    """HTTP that closes a connection unless the head of the next request arrives in time. uvicorn's own timer stops at
    the first byte, so that a client who sends a byte now and then would stay for ever."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def data_received(self, data: bytes) -> None:
        self.conn.receive_data(data)
        self.handle_events()  # stops the timer at a whole head


def listen(host: str, port: int) -> socket.socket:
    """Take a port; 0: a free one. Raises ConfigError for one that is in use, or an address that this machine does not
    have."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=256)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(f"port={port} is in use on {host}; choose another, such as port={port + 1}") from error
        if error.errno in (errno.EACCES, errno.EPERM):
            raise ConfigError(f"port={port} needs more rights; choose one from 1024 on, such as port=8000") from error
        raise ConfigError(f"host={host} is no address of this machine; use 127.0.0.1, or 0.0.0.0 for all") from error


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach an address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == LOCAL


def format_address(listener: socket.socket) -> str:
    """Write the address of a socket as a browser takes it."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def serve_until_signal(app: FastAPI, listener: socket.socket, **options: Any) -> None:
    """Serve, until SIGINT or SIGTERM; then take no more requests, answer the open ones, and pass the signal on."""
    config = uvicorn.Config(
        app,
        http=ImpatientProtocol,
        ws="none",
        log_level="error",
        access_log=False,
        server_header=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=HEAD_SECONDS,
        **options,
    )
    uvicorn.Server(config).run(sockets=[listener])
