"""A shell inside an element that stays: what one command leaves (a directory, variables, jobs), the next one finds."""

from __future__ import annotations

import secrets
import shlex
import threading

from ._errors import Broken
from ._stream import EXIT, STDOUT, Stream

# bash where there is one; what every element has is sh.
START = ["sh", "-c", "command -v bash >/dev/null 2>&1 && exec bash --noprofile --norc; exec sh"]


class Shell:
    """Runs one command after the other. Only one thread may use it at a time."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        # No command prints it by chance, and none knows it.
        self._mark = secrets.token_hex(16)
        self.usable = True

    def run(self, command: str) -> tuple[str, int]:
        """Runs a command line and returns what it printed, errors too, and its status.

        What the command puts into the background goes on, and prints into the answers of later commands.
        """
        self.usable = False  # an exception on the way leaves a stream of which nobody knows where it is
        quoted = shlex.quote(command)
        # `command` keeps a mistake in the line from ending a POSIX shell.
        line = f"command eval {quoted} </dev/null 2>&1\nprintf '%s%d\\n' {self._mark} $?\n"
        try:
            self._stream.write(line.encode("utf-8", "surrogateescape"))
        except Broken:
            pass  # what the other side said before it went is still to be read
        mark, got = self._mark.encode(), b""
        while True:
            kind, data = self._stream.read()
            if kind == EXIT:
                self._stream.close()
                return got.decode("utf-8", "replace"), int(data)  # as `exit 3`, which ends the shell
            searched = max(0, len(got) - len(mark))
            got += data
            at = got.find(mark, searched)
            end = got.find(b"\n", at) if at >= 0 else -1
            if end >= 0:
                break
        self.usable = True
        after = got[end + 1:]  # of a job in the background
        return (got[:at] + after).decode("utf-8", "replace"), int(got[at + len(mark):end])

    def close(self) -> None:
        """Ends the shell."""
        self.usable = False
        self._stream.close()


class Process:
    """A command that runs beside the script, as Mininet's popen gives it."""

    def __init__(self, stream: Stream, args: list[str]) -> None:
        self.args = args
        self.returncode: int | None = None
        self._stream = stream
        self._out, self._err = bytearray(), bytearray()
        self._failure: Exception | None = None
        self._ended_by_us = False
        self._reader = threading.Thread(target=self._read, name="polyplane exec", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        try:
            while True:
                kind, data = self._stream.read()
                if kind == EXIT:
                    self.returncode = int(data)
                    break
                (self._out if kind == STDOUT else self._err).extend(data)
        except Exception as err:  # told by wait(), in the thread that asks
            if self._ended_by_us:
                self.returncode = -15
            else:
                self._failure = err
        finally:
            self._stream.close()

    def poll(self) -> int | None:
        """The status, or None while the command runs."""
        if not self._reader.is_alive() and self._failure is not None:
            raise self._failure
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end, and returns the status."""
        self._reader.join(timeout)
        if self._reader.is_alive():
            raise TimeoutError(f"{shlex.join(self.args)} has not ended within {timeout} s")
        if self._failure is not None:
            raise self._failure
        if self.returncode is None:
            raise Broken(f"{shlex.join(self.args)} ended without a status")
        return self.returncode

    def communicate(self, input: str | None = None, timeout: float | None = None) -> tuple[str, str]:
        """Sends the input, waits for the end, and returns what was printed and what was complained."""
        if self._reader.is_alive():
            try:
                if input:
                    self._stream.write(input.encode())
                self._stream.close_stdin()
            except Broken:
                pass  # the command has ended meanwhile, or wait() says what is wrong
        self.wait(timeout)
        return self.output(), self._err.decode("utf-8", "replace")

    def output(self) -> str:
        """What was printed so far."""
        return bytes(self._out).decode("utf-8", "replace")

    def terminate(self) -> None:
        """Ends the command, if it still runs."""
        if self._reader.is_alive():
            self._ended_by_us = True
            self._stream.close()
            self._reader.join()
