"""A page by HTTP/1.0 over a plain socket, for a thread that sits in another network namespace."""

import socket

from tests.support.slowness import patient


def fetch(host: str, port: int, path: str) -> str:
    with socket.create_connection((host, port), timeout=patient(10)) as connection:
        connection.sendall(f"GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
        parts = []
        while data := connection.recv(65536):
            parts.append(data)
    return b"".join(parts).partition(b"\r\n\r\n")[2].decode()
