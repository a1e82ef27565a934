"""Topologies by themselves, as Mininet's are: a class whose build() says what there is, for any number of networks."""

from __future__ import annotations

from typing import Any


class Topo:
    """What a network consists of. Subclasses say it in build(), which gets the arguments of the constructor.

    The methods take what those of Network do, and names instead of elements.
    """

    def __init__(self, *args: Any, **params: Any) -> None:
        self.steps: list[tuple[str, tuple[str, ...], dict[str, Any]]] = []
        self.build(*args, **params)

    def build(self, *args: Any, **params: Any) -> None:
        """Is written anew by subclasses."""

    def addHost(self, name: str, **opts: Any) -> str:
        """Adds a host; see Network.addHost."""
        return self._add("addHost", name, opts)

    def addRouter(self, name: str, **opts: Any) -> str:
        """Adds a router; see Network.addRouter."""
        return self._add("addRouter", name, opts)

    def addSwitch(self, name: str, **opts: Any) -> str:
        """Adds a switch; see Network.addSwitch."""
        return self._add("addSwitch", name, opts)

    def addLink(self, node1: str, node2: str, **opts: Any) -> None:
        """Adds a link; see Network.addLink."""
        self.steps.append(("addLink", (node1, node2), opts))

    def _add(self, step: str, name: str, opts: dict[str, Any]) -> str:
        self.steps.append((step, (name,), opts))
        return name
