"""polyplane for Python scripts: virtual networks described, started, used and removed, as Mininet's users know it.

    from polyplane import Network

    with Network("lab") as net:
        h1, h2, r1 = net.addHost("h1"), net.addHost("h2"), net.addRouter("r1")
        net.addLink(h1, r1, bw=10)
        net.addLink(h2, r1)
        net.start()
        print(h1.cmd("ping -c1", h2))
"""

from . import _types as types
from ._client import Client
from ._errors import (Broken, Busy, CommandError, Conflict, Denied, Invalid, NotFound, NotReady, NotRunning,
                      PolyplaneError, Reason, Refused)
from ._network import Network, UnknownElement
from ._nodes import Host, Link, Node, Router, Switch
from ._shell import Process
from ._topo import Topo

__all__ = [
    "Broken", "Busy", "Client", "CommandError", "Conflict", "Denied", "Host", "Invalid", "Link", "Network", "Node",
    "NotFound", "NotReady", "NotRunning", "PolyplaneError", "Process", "Reason", "Refused", "Router", "Switch", "Topo",
    "UnknownElement", "types",
]
