"""A command inside an element: frames over an upgraded connection (one byte of type, four of length, the payload)."""

from __future__ import annotations

import http.client
import json
import socket
import struct
import threading

from ._errors import Broken, CommandError

PROTOCOL = "polyplane-stream"

STDIN, STDOUT, STDERR, RESIZE, EXIT, STDIN_CLOSED = range(6)
# What one frame may carry.
_MOST = {STDIN: 1 << 20, STDOUT: 1 << 20, STDERR: 1 << 20, RESIZE: 64 << 10, EXIT: 64 << 10, STDIN_CLOSED: 0}
_CHUNK = 32 << 10
_BROKEN = ("the connection broke before the command ended, as when an agent or the manager is restarted, which does "
           "not touch the element")


class Stream:
    """The standard streams of a running command. One thread reads; others may write, and close."""

    def __init__(self, connection: http.client.HTTPConnection, answer: http.client.HTTPResponse) -> None:
        self._connection = connection
        self._socket = connection.sock
        self._reader = answer.fp  # it may hold what came with the head of the answer
        self._writing = threading.Lock()

    def write(self, data: bytes) -> None:
        """Sends to the command's standard input."""
        for at in range(0, len(data), _CHUNK):
            self._send(STDIN, data[at:at + _CHUNK])

    def close_stdin(self) -> None:
        """Tells the command that nothing more will come."""
        self._send(STDIN_CLOSED, b"")

    def read(self) -> tuple[int, bytes]:
        """The next frame: STDOUT or STDERR with what the command wrote, or EXIT with its status in decimal digits."""
        kind, size = struct.unpack(">BI", self._exactly(5))
        if size > _MOST.get(kind, -1):
            raise Broken(f"the stream has a frame of type {kind} with {size} bytes, which nobody sends")
        data = self._exactly(size)
        if kind == EXIT:
            end = json.loads(data)
            if end.get("error"):
                raise CommandError(end["error"])
            return EXIT, str(end.get("code", 0)).encode()
        if kind not in (STDOUT, STDERR):
            raise Broken(f"the stream has a frame of type {kind} where the command's output was expected")
        return kind, data

    def close(self) -> None:
        """Ends the command, if it still runs."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes a thread that reads
        except OSError:
            pass  # the other side has closed it
        self._connection.close()

    def _exactly(self, size: int) -> bytes:
        try:
            data = self._reader.read(size)
        except (OSError, ValueError) as err:  # ValueError: it was closed meanwhile
            raise Broken(f"{_BROKEN}: {err}") from err
        if len(data) != size:
            raise Broken(_BROKEN)
        return data

    def _send(self, kind: int, data: bytes) -> None:
        with self._writing:
            try:
                self._socket.sendall(struct.pack(">BI", kind, len(data)) + data)
            except (OSError, ValueError) as err:
                raise Broken(f"{_BROKEN}: {err}") from err
