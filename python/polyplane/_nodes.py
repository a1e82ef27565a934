"""Elements of a network, and its links, as objects."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from ._errors import CommandError, PolyplaneError
from ._shell import START, Process, Shell
from ._stream import Stream

if TYPE_CHECKING:
    from ._network import Network


class Node:
    """A router, a host or a switch."""

    def __init__(self, network: Network, name: str) -> None:
        self.network, self.name = network, name
        self._shell: Shell | None = None

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.network.name}/{self.name}>"

    # What is asked of a running network.

    def IP(self, intf: str | None = None) -> str:
        """Its first address, of an interface or of all: IPv4 where there is one. Routers' loopbacks come last."""
        for wanted in ("ipv4", "any"):
            for address in self.addresses(intf):
                if wanted == "any" or ":" not in address:
                    return address.split("/")[0]
        later = "" if self.network.running else " yet: net.start() gives it one"
        raise PolyplaneError(f"{self._id} has no address" + (f" on {intf}" if intf else "") + later)

    def addresses(self, intf: str | None = None) -> list[str]:
        """Its addresses with their prefix lengths, interface by interface."""
        element = self.network._resolved(self.name)
        known = [i for i in element.get("interfaces", []) if intf is None or i["name"] == intf]
        if intf is not None and not known:
            raise PolyplaneError(f"{self._id} has no interface {intf!r}; there are {', '.join(self.intfNames())}")
        loopback = element.get("loopback", []) if intf is None else []
        return [address for i in known for address in i.get("addresses", [])] + loopback

    def MAC(self, intf: str | None = None) -> str:
        """The MAC address of an interface; of the first when it is not said which."""
        for i in self.network._resolved(self.name).get("interfaces", []):
            if intf is None or i["name"] == intf:
                return i.get("mac", "")
        raise PolyplaneError(f"{self._id} has no interface" + (f" {intf!r}" if intf else ""))

    def intfNames(self) -> list[str]:
        """The names of its interfaces, each that of the element at the far end unless a link said otherwise."""
        return [i["name"] for i in self.network._element(self.name).get("interfaces", [])]

    @property
    def phase(self) -> str:
        """How it is now: running, stopped, suspended, pending, failed."""
        return self.network._view(self.name, anew=True)["phase"]

    # Commands.

    def cmd(self, *args: str | Node) -> str:
        """Runs a command line in the element's shell and returns what it printed, errors too.

        The shell stays: a directory, a variable and jobs in the background (&) outlive the command, as in Mininet.
        An element among the words stands for its address: h1.cmd('ping -c1', h2).
        """
        return self.run(*args)[0]

    def run(self, *args: str | Node) -> tuple[str, int]:
        """As cmd, with the command's status."""
        words = " ".join(arg.IP() if isinstance(arg, Node) else arg for arg in args)
        if self._shell is None or not self._shell.usable:
            self.closeShell()
            self._shell = Shell(self._begin(START))
        try:
            return self._shell.run(words)
        except BaseException:  # ^C as well: nobody knows what the shell does now, so it ends, and the command with it
            self.closeShell()
            raise

    def cmdPrint(self, *args: str | Node) -> str:
        """As cmd, and prints the command and what it printed."""
        print(f"*** {self.name} : {' '.join(str(arg) for arg in args)}")
        printed = self.cmd(*args)
        print(printed, end="")
        return printed

    def popen(self, *args: str | Sequence[str], env: Mapping[str, str] | None = None) -> Process:
        """Begins a command beside the script: words, one list of words, or one line for a shell."""
        words = self._words(args)
        return Process(self._begin(words, env), words)

    def pexec(self, *args: str | Sequence[str], env: Mapping[str, str] | None = None) -> tuple[str, str, int]:
        """Runs a command of its own and returns what it printed, what it complained, and its status."""
        process = self.popen(*args, env=env)
        try:
            out, err = process.communicate()
        except BaseException:
            process.terminate()
            raise
        return out, err, process.wait()

    def logs(self) -> str:
        """What its processes printed."""
        return self.network.client.logs(self.network.name, self.name)

    # What is done to it.

    def start(self) -> None:
        """Starts it, and waits until it runs."""
        self._act("start", "running")

    def stop(self) -> None:
        """Stops it; what it has on disk stays."""
        self.closeShell()
        self._act("stop", "stopped")

    def restart(self) -> None:
        """Stops it and starts it again."""
        self.closeShell()
        self._act("restart", "running")

    def suspend(self) -> None:
        """Holds its processes."""
        self._act("suspend", "suspended")

    def resume(self) -> None:
        """Lets them go on."""
        self._act("resume", "running")

    def set(self, **values: object) -> None:
        """Changes limits and the like in place: r1.set(memory='512MiB')."""
        self.network._set(self.name, values)

    def closeShell(self) -> None:
        """Ends the shell of cmd; the next command begins another."""
        shell, self._shell = self._shell, None
        if shell is not None:
            shell.close()

    @property
    def _id(self) -> str:
        return f"{self.network.name}/{self.name}"

    def _words(self, args: tuple[str | Sequence[str], ...]) -> list[str]:
        if len(args) == 1 and isinstance(args[0], str):
            return ["sh", "-c", args[0]] if shlex.split(args[0]) != [args[0]] else [args[0]]
        if len(args) == 1:
            return list(args[0])
        if not args or not all(isinstance(arg, str) for arg in args):
            raise CommandError(f"{self._id}: a command is words, one list of words, or one line")
        return list(cast("tuple[str, ...]", args))

    def _begin(self, words: list[str], env: Mapping[str, str] | None = None) -> Stream:
        self.network._must_run(f"{self._id}: run {words[0]}")
        return self.network.client.exec(self.network.name, self.name, words, env)

    def _act(self, action: str, phase: str) -> None:
        self.network._must_run(f"{action} {self._id}")
        result = self.network.client.act(self.network.name, self.name, action)
        self.network._await_action(self.name, phase, result.get("revision", 0), action)


class Host(Node):
    """An end system."""


class Router(Node):
    """Routes packets."""

    def vtysh(self, *commands: str) -> str:
        """What FRR answers to commands."""
        words = ["vtysh"]
        for command in commands:
            words += ["-c", command]
        out, err, status = self.pexec(words)
        if status != 0:
            raise CommandError(f"{self._id}: vtysh ended with {status}: {(err or out).strip()}")
        return out


class Switch(Node):
    """One layer-2 segment: a learning bridge, which needs no controller."""


class Link:
    """A link between two elements."""

    def __init__(self, network: Network, name: str, ends: tuple[tuple[Node, str], tuple[Node, str]]) -> None:
        self.network, self.name, self.ends = network, name, ends

    def __str__(self) -> str:
        (a, i), (b, j) = self.ends
        return f"{a.name}:{i}<->{b.name}:{j}"

    def __repr__(self) -> str:
        return f"<Link {self.network.name}/{self.name}>"

    def set(self, **values: object) -> None:
        """Changes it in place, while packets flow: link.set(bandwidth='5Mbit', loss='1%')."""
        self.network._set(self.name, values)

    def stop(self) -> None:
        """Pulls it out like a cable: both ends lose their carrier."""
        self.set(state="down")

    def start(self) -> None:
        """Puts it in again."""
        self.set(state="up")
