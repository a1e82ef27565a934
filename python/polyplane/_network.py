"""A network: what it consists of, and its life."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar, cast, overload

from . import _document as document
from . import _types as types
from . import _units as units
from ._client import Client
from ._connect import user
from ._errors import Busy, CommandError, Conflict, NotFound, NotReady, PolyplaneError
from ._nodes import Host, Link, Node, Router, Switch
from ._topo import Topo

# How long starting, stopping and changing are waited for, and how often is looked.
TIMEOUT = 300.0
_LOOK = 0.05
# Something may stay failed for so long while nothing else is under way: agents try again by themselves.
_FAILURE_GRACE = 3.0
# How long agents that are just starting are waited for.
_AGENTS = 10.0

_KINDS: dict[str, type[Node]] = {"host": Host, "router": Router, "switch": Switch}
_N = TypeVar("_N", bound=Node)


class UnknownElement(PolyplaneError, LookupError):
    """A network has no element of a name."""


class Network:
    """One virtual network. It is described first (addHost, addRouter, addLink…), and start() makes it so.

    `instance`, `server` and `token` say which manager it is for; without them that is as for the commands: the
    environment (POLYPLANE_INSTANCE, POLYPLANE_SERVER, POLYPLANE_TOKEN), `polyplane login`, or this machine's default
    instance. With `replace` a network that has the name already becomes this one; else start() refuses it.
    """

    def __init__(self, name: str = "lab", topo: Topo | None = None, *, replace: bool = False,
                 pools: Sequence[str] | None = None, owner: str | None = None, instance: str | None = None,
                 server: str | None = None, token: str | None = None, client: Client | None = None) -> None:
        self.name = name
        self.client = client if client is not None else Client(instance, server=server, token=token)
        self.document: types.Network = {"name": name, "elements": [], "links": []}
        if pools:
            self.document["pools"] = list(pools)
        self._owner = owner
        self._nodes: dict[str, Node] = {}
        self._links: dict[str, Link] = {}
        self._first: dict[str, dict[str, Any]] = {}  # what is said of elements' first interfaces
        self._views: dict[str, types.ElementView] = {}
        self._base = 0 if replace else -1
        self._applied: types.Network | None = None  # as the manager completed it
        self._revision = 0
        self._deletes = True  # leaving `with` removes what was started
        self.running = False
        for step, names, opts in topo.steps if topo is not None else []:
            getattr(self, step)(*names, **opts)

    @classmethod
    def open(cls, name: str, *, instance: str | None = None, server: str | None = None, token: str | None = None,
             client: Client | None = None) -> Network:
        """A network that there is already, however it was made. Leaving `with` does not remove it."""
        net = cls(name, instance=instance, server=server, token=token, client=client)
        record = net.client.network(name)
        net.document = copy.deepcopy(record["network"])
        net._take(record)
        net._revision, net.running, net._deletes = record["revision"], True, False
        for element in net.document.get("elements", []):
            net._nodes[element["name"]] = _KINDS[element["kind"]](net, element["name"])
        for link in net.document.get("links", []):
            a, b = link["ends"] or []
            net._links[link["name"]] = Link(net, link["name"], ((net._nodes[a["element"]], a["interface"]),
                                                                (net._nodes[b["element"]], b["interface"])))
        net._refresh()
        return net

    # What there is.

    def addHost(self, name: str, ip: str | Sequence[str] | None = None, mac: str | None = None,
                defaultRoute: str | None = None, *, gateway: str | Sequence[str] | None = None,
                cpu: float | str | None = None, memory: str | None = None, node: str | None = None,
                routes: Sequence[str | types.Route] | None = None, **more: Any) -> Host:
        """Adds a host. What is not said is assigned: its address from its link's subnet, its gateway likewise.

        ip and mac are those of its first link. `more` is anything else that the API's elements have.
        """
        if defaultRoute is not None and gateway is not None:
            raise ValueError(f"host {name}: defaultRoute and gateway say the same; give one of them")
        return self._add(Host, "host", name, ip, mac, dict(
            more, defaultRoute=defaultRoute, gateway=gateway, cpu=cpu, memory=memory, node=node, routes=routes))

    def addRouter(self, name: str, *, ospf: bool | Mapping[str, Any] | None = None,
                  ospf6: bool | Mapping[str, Any] | None = None, isis: bool | Mapping[str, Any] | None = None,
                  bgp: int | Mapping[str, Any] | None = None, rip: bool | Mapping[str, Any] | None = None,
                  software: str | None = None, config: str | Mapping[str, str] | None = None,
                  forwarding: str | None = None, loopback: str | Sequence[str] | None = None,
                  gateway: str | Sequence[str] | None = None, routes: Sequence[str | types.Route] | None = None,
                  cpu: float | str | None = None, memory: str | None = None, node: str | None = None,
                  **more: Any) -> Router:
        """Adds a router. ospf=True runs OSPF on all its interfaces, bgp=65001 BGP in that AS; without any protocol, and
        without a configuration of its own, it has the kernel's static routes only."""
        return self._add(Router, "router", name, None, None, dict(
            more, ospf=ospf, ospf6=ospf6, isis=isis, bgp=bgp, rip=rip, software=software, config=config,
            forwarding=forwarding, loopback=loopback, gateway=gateway, routes=routes, cpu=cpu, memory=memory,
            node=node))

    def addSwitch(self, name: str, *, prefixes: str | Sequence[str] | None = None, node: str | None = None,
                  **more: Any) -> Switch:
        """Adds a switch: a learning bridge. `prefixes` are its segment's subnets."""
        return self._add(Switch, "switch", name, None, None, dict(more, prefixes=prefixes, node=node))

    def addLink(self, node1: Node | str, node2: Node | str, *, bw: float | str | None = None,
                delay: str | None = None, jitter: str | None = None, loss: float | str | None = None,
                mtu: int | None = None, intfName1: str | None = None, intfName2: str | None = None,
                ip1: str | Sequence[str] | None = None, ip2: str | Sequence[str] | None = None,
                params1: Mapping[str, Any] | None = None,
                params2: Mapping[str, Any] | None = None, prefixes: str | Sequence[str] | None = None,
                name: str | None = None, **more: Any) -> Link:
        """Adds a link. As in Mininet, bw is in Mbit/s and loss in percent; all of it holds for each direction.

        An interface is named after the element at its far end unless intfName1 or intfName2 says otherwise. ip1 and
        ip2 are the ends' addresses; params1={'ip': …} is Mininet's way to say so.
        """
        ends = (self._node(node1), self._node(node2))
        what = f"link {ends[0].name}--{ends[1].name}"
        try:
            settings, zeros = document.link(dict(more, bw=bw, delay=delay, jitter=jitter, loss=loss, mtu=mtu, name=name,
                                                 prefixes=prefixes))
        except (TypeError, ValueError) as err:
            raise type(err)(f"{what}: {err}") from None
        if ends[0] is ends[1]:
            raise ValueError(f"{what}: a link joins two elements")
        given = settings.pop("name", None)
        if given is not None and given in self._links:
            raise ValueError(f"{what}: network {self.name} has a link {given} already")
        link_name = given or _free(f"{ends[0].name}--{ends[1].name}", self._links)
        names = [self._free_interface(ends[0], intfName1, ends[1]), self._free_interface(ends[1], intfName2, ends[0])]
        said = [self._end(what, ip1, params1), self._end(what, ip2, params2)]
        for node, interface, extra in zip(ends, names, said):
            new = cast(types.Interface, {"name": interface} | extra)
            self._element(node.name).setdefault("interfaces", []).append(new)
        self.document.setdefault("links", []).append(cast(types.Link, settings | {"name": link_name, "ends": [
            {"element": node.name, "interface": interface} for node, interface in zip(ends, names)]}))
        if zeros:
            self.document.setdefault("zeros", {}).setdefault("links", {})[link_name] = zeros
        link = Link(self, link_name, ((ends[0], names[0]), (ends[1], names[1])))
        self._links[link_name] = link
        return link

    def addController(self, *args: object, **params: object) -> None:
        """There is none: says so instead of failing on an unknown method."""
        raise PolyplaneError("polyplane's switches are learning bridges and need no controller: leave addController "
                             "out")

    def delNode(self, node: Node | str) -> None:
        """Takes an element out, and its links with it; a network that runs loses it at the next start()."""
        gone = self._node(node)
        gone.closeShell()
        for link in self.links:
            if any(end is gone for end, _ in link.ends):
                self.delLink(link)
        elements = self.document.get("elements", [])
        elements[:] = [e for e in elements if e["name"] != gone.name]
        self._first.pop(gone.name, None)
        del self._nodes[gone.name]

    def delLink(self, link: Link) -> None:
        """Takes a link out, as delNode."""
        for node, interface in link.ends:
            interfaces = self._element(node.name).get("interfaces", [])
            interfaces[:] = [i for i in interfaces if i["name"] != interface]
        links = self.document.get("links", [])
        links[:] = [x for x in links if x["name"] != link.name]
        self.document.get("zeros", {}).get("links", {}).pop(link.name, None)
        del self._links[link.name]

    def expect(self, *statements: str) -> None:
        """Says what check() verifies: 'h1 reaches h2', 'h1 does not reach h3', 'h1 reaches h2 over ipv6'."""
        self.document.setdefault("expect", []).extend(document.expectation(text) for text in statements)

    # What was added.

    @overload
    def get(self, name: str, /) -> Node: ...

    @overload
    def get(self, name: str, second: str, /, *names: str) -> list[Node]: ...

    def get(self, *names: str) -> Node | list[Node]:
        """The element of a name, or a list of several."""
        nodes = [self[name] for name in names]
        return nodes[0] if len(nodes) == 1 else nodes

    def getNodeByName(self, *names: str) -> Node | list[Node]:
        """As get."""
        return self.get(*names)

    def __getitem__(self, name: str) -> Node:
        if name not in self._nodes:
            there = ", ".join(self._nodes) or "none yet"
            raise UnknownElement(f"network {self.name} has no element {name!r}; there are {there}")
        return self._nodes[name]

    def __contains__(self, name: object) -> bool:
        return name in self._nodes

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def values(self) -> list[Node]:
        """All elements, in the order in which they were added."""
        return list(self._nodes.values())

    @property
    def hosts(self) -> list[Host]:
        """The hosts."""
        return self._of(Host)

    @property
    def routers(self) -> list[Router]:
        """The routers."""
        return self._of(Router)

    @property
    def switches(self) -> list[Switch]:
        """The switches."""
        return self._of(Switch)

    @property
    def links(self) -> list[Link]:
        """The links."""
        return list(self._links.values())

    def link(self, node1: Node | str, node2: Node | str) -> Link:
        """The first link between two elements."""
        wanted = {str(node1), str(node2)}
        for link in self._links.values():
            if {node.name for node, _ in link.ends} == wanted:
                return link
        raise UnknownElement(f"network {self.name} has no link between {node1} and {node2}")

    def configLinkStatus(self, node1: Node | str, node2: Node | str, status: str) -> None:
        """Pulls the link between two elements out ('down'), or puts it in again ('up')."""
        if status not in ("up", "down"):
            raise ValueError(f"{status!r} is neither 'up' nor 'down'")
        self.link(node1, node2).set(state=status)

    # Its life.

    def start(self, timeout: float = TIMEOUT) -> Network:
        """Makes the network as it was described, and waits until all of it runs.

        Called again, it makes what was added or changed meanwhile; what does not differ is not touched.
        """
        self._finish()
        result = self._apply()
        self._take(result["record"])
        self._revision = self._base
        self.running = True
        self._await_running(time.monotonic() + timeout, timeout)
        self._refresh()
        return self

    def stop(self, timeout: float = TIMEOUT, now: bool = False) -> None:
        """Removes the network, and waits until it is gone. What elements wrote goes to the trash, with now nowhere."""
        self._close_shells()
        if not self.running:
            return
        try:
            self.client.delete(self.name, now=now)
        except NotFound:
            pass  # somebody else was quicker
        self._poll(timeout, lambda: all(n["name"] != self.name for n in self.client.networks()),
                   lambda: f"{self.name} is not yet removed after {timeout:g} s; it goes on being removed")
        self.running, self._base, self._views = False, -1, {}

    def __enter__(self) -> Network:
        """Starts the network if it has elements already, as it has with a topology."""
        if self._nodes and not self.running:
            try:
                self.start()
            except BaseException:
                self._leave()
                raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._leave()

    def close(self) -> None:
        """Ends the shells in the elements; the network stays."""
        self._close_shells()

    # What it does.

    def pingAll(self, timeout: float = 0, verbose: bool = True) -> float:
        """Probes every pair of hosts, both ways, and returns what percentage was lost.

        A probe counts only when the very element answers that it was for. With a timeout, it is tried again until all
        answer or so many seconds have passed, as routing protocols need them in the beginning.
        """
        return self.ping(None, timeout, verbose)

    def ping(self, hosts: Sequence[Node | str] | None = None, timeout: float = 0, verbose: bool = True) -> float:
        """As pingAll, of some hosts."""
        names = [self._node(h).name for h in hosts] if hosts is not None else [h.name for h in self.hosts]
        deadline = time.monotonic() + timeout
        while True:
            probes = self._probes(names)
            lost = sum(not probe["reached"] for probe in probes)
            if lost == 0 or time.monotonic() >= deadline:
                break
            time.sleep(min(0.2, max(0.0, deadline - time.monotonic())))
        percent = 100.0 * lost / len(probes) if probes else 0.0
        if verbose:
            print("*** Ping: testing ping reachability")
            for name in names:
                there = [_reached(probes, f"{self.name}/{name}", f"{self.name}/{to}", to) for to in names if to != name]
                print(f"{name} -> {' '.join(there)}")
            print(f"*** Results: {percent:.0f}% dropped ({len(probes) - lost}/{len(probes)} received)")
        return percent

    def pingPair(self, timeout: float = 0) -> float:
        """As ping, of the first two hosts."""
        return self.ping(self.hosts[:2], timeout)

    def waitConnected(self, timeout: float = 60) -> bool:
        """Waits until every host reaches every other; tells whether that came."""
        return self.pingAll(timeout, verbose=False) == 0

    def check(self, wait: float = 0, mesh: bool = False) -> types.CheckResult:
        """Verifies what expect() said, and with mesh that every host reaches every other."""
        self._must_run(f"check {self.name}")
        request: types.CheckRequest = {"wait": int(wait * 1e9)}
        if mesh:
            request["mesh"] = True
        return self.client.check(self.name, request)

    def iperf(self, hosts: Sequence[Node | str] | None = None, l4Type: str = "TCP", udpBw: str = "10M",
              seconds: float = 5, port: int = 5201) -> list[str]:
        """Measures with iperf3 from the first host to the second; returns the rates received and sent, as Mininet does.

        `polyplane traffic` measures frame by frame, and needs no program inside.
        """
        if l4Type not in ("TCP", "UDP"):
            raise ValueError(f"{l4Type!r} is neither 'TCP' nor 'UDP'")
        pair = [self._node(h) for h in hosts] if hosts is not None else [self.hosts[0], self.hosts[-1]]
        if len(pair) != 2 or pair[0] is pair[1]:
            raise ValueError("iperf measures between two hosts")
        client, server = pair
        listening = server.popen("iperf3", "-s", "-1", "-p", str(port))
        try:
            words = ["iperf3", "-c", server.IP(), "-p", str(port), "-t", f"{seconds:g}", "-J"]
            if l4Type == "UDP":
                words += ["-u", "-b", udpBw]
            deadline = time.monotonic() + _AGENTS
            while True:
                out, err, status = client.pexec(words)
                # It may end with 0 and say in its answer what is wrong.
                if "onnection refused" not in out + err or time.monotonic() > deadline:
                    break
                time.sleep(0.1)  # the server has not opened its port yet
        finally:
            listening.terminate()
        if status == 127:
            raise CommandError(f"{client._id}: there is no iperf3 on its node; Debian's package of that name has it")
        try:
            end = json.loads(out)["end"]
            received, sent = (end["sum_received"], end["sum_sent"]) if l4Type == "TCP" else (end["sum"], end["sum"])
            return [_rate(received["bits_per_second"]), _rate(sent["bits_per_second"])]
        except (ValueError, KeyError):
            raise CommandError(f"iperf3 from {client._id} to {server._id} ended with {status}: "
                               f"{(err or out).strip()}") from None

    # Below this is what the other modules and the methods above need.

    def _add(self, kind: type[_N], word: str, name: str, ip: str | Sequence[str] | None, mac: str | None,
             said: dict[str, Any]) -> _N:
        if name in self._nodes:
            raise ValueError(f"network {self.name} has an element {name} already")
        element = document.element(word, name, said)
        first = self._end(f"{word} {name}", ip, {"mac": mac} if mac else None)
        self.document.setdefault("elements", []).append(element)
        if first:
            self._first[name] = first
        node = kind(self, name)
        self._nodes[name] = node
        return node

    def _end(self, what: str, ip: str | Sequence[str] | None, params: Mapping[str, Any] | None) -> dict[str, Any]:
        """What is said of an interface, as the API has it."""
        extra: dict[str, Any] = {}
        for key, value in ({"ip": ip} | dict(params or {})).items():
            if value is None:
                continue
            if key == "ip":
                try:
                    texts = [value] if isinstance(value, str) else value
                    extra["addresses"] = [units.interface_address(text) for text in texts]
                except ValueError as err:
                    raise ValueError(f"{what}: ip: {err}") from None
            elif key == "mac":
                extra["mac"] = str(value)
            else:
                raise TypeError(f"{what}: an interface has no {key!r}; there are ip, mac")
        return extra

    def _finish(self) -> None:
        """Gives to elements' first interfaces what was said of them."""
        for name, said in list(self._first.items()):
            interfaces = self._element(name).get("interfaces", [])
            if not interfaces:
                raise ValueError(f"{name}: ip and mac are those of its first link, and it has none")
            cast("dict[str, Any]", interfaces[0]).update(said)
            del self._first[name]

    def _apply(self) -> types.ApplyResult:
        owner = self._owner or user()
        deadline = time.monotonic() + _AGENTS
        while True:
            try:
                return self.client.apply(self.document, base=self._base, owner=owner)
            except Busy as err:  # the agents of nodes may just be starting
                if err.status != 503 or time.monotonic() >= deadline:
                    raise
                time.sleep(0.1)
            except Conflict as err:
                if self._base > 0 and self._still_ours():
                    continue
                if self._base != -1:
                    raise
                raise Conflict(err.status, f"there is a network {self.name} already; Network({self.name!r}, "
                               f"replace=True) makes it this one, Network.open({self.name!r}) takes it as it is"
                               ) from err

    def _still_ours(self) -> bool:
        """Whether a network at another revision says what we said: starting and stopping elements counts as well."""
        record = self.client.network(self.name)
        if record["revision"] == self._base or record["network"] != self._applied:
            return False
        self._base = record["revision"]
        return True

    def _take(self, record: types.Record) -> None:
        """Notes what the manager has of the network now."""
        self._base, self._applied = record["revision"], record["network"]
        # Where it is somebody else's, OWNER/NAME.
        self.name = self.document["name"] = self._applied["name"]

    def _await_running(self, deadline: float, timeout: float) -> None:
        failed_since = 0.0
        while True:
            status = next((n for n in self.client.networks() if n["name"] == self.name), None)
            if status is None:
                raise NotReady(f"{self.name} was removed by somebody else while it was being started")
            told = status["revision"] >= self._revision
            if told and status["phase"] in ("running", "stopped"):
                return
            if told and status.get("failed") and status["phase"] != "pending":
                failed_since = failed_since or time.monotonic()
                if time.monotonic() - failed_since >= _FAILURE_GRACE:
                    raise NotReady(self._why())
            else:
                failed_since = 0.0
            if time.monotonic() >= deadline:
                raise NotReady(f"not everything runs after {timeout:g} s: {self._why()}")
            time.sleep(_LOOK)

    def _why(self) -> str:
        lines = []
        for view in self.client.elements(self.name):
            if view["phase"] in ("running", "stopped", "suspended"):
                continue
            phase = "has failed" if view["phase"] == "failed" else f"is {view['phase']}"
            message = " ".join(view.get("message", "").split())
            lines.append(f"{view['id']} {phase}" + (f" on {view['node']}" if view["node"] else "") +
                         (f": {message}" if message else ""))
        if not lines:
            return f"the nodes of {self.name} have not told yet"
        more = [f"and {len(lines) - 5} more"] if len(lines) > 5 else []
        return "\n  ".join(([""] if len(lines) > 1 else []) + lines[:5] + more)

    def _await_action(self, name: str, phase: str, revision: int, action: str) -> None:
        def done() -> bool:
            nodes = {n["name"]: n["revision"] for n in self.client.nodes()}
            view = self._view(name, anew=True)
            if nodes.get(view["node"], 0) < revision or view.get("atWork"):
                return False
            if view["phase"] == "failed":
                raise NotReady(f"{action} {self.name}/{name}: it has failed: {view.get('message', '')}")
            return view["phase"] == phase
        self._poll(TIMEOUT, done, lambda: f"{action} {self.name}/{name}: it is not done after {TIMEOUT:g} s")

    def _set(self, name: str, values: Mapping[str, object]) -> None:
        self._must_run(f"set {self.name}/{name}")
        result = self.client.set(self.name, name, {key: str(value) for key, value in values.items()})
        self._take(result["record"])
        wanted = result.get("nodes", {})

        def done() -> bool:
            nodes = {n["name"]: n["revision"] for n in self.client.nodes()}
            return all(nodes.get(node, 0) >= revision for node, revision in wanted.items())
        self._poll(TIMEOUT, done, lambda: f"set {self.name}/{name}: it is stored, and not all nodes have done it after "
                                          f"{TIMEOUT:g} s")

    def _poll(self, timeout: float, done: Callable[[], bool], words: Callable[[], str]) -> None:
        deadline = time.monotonic() + timeout
        while not done():
            if time.monotonic() >= deadline:
                raise NotReady(words())
            time.sleep(_LOOK)

    def _probes(self, names: Iterable[str]) -> list[types.ProbeResult]:
        """The results between these hosts, of one check of all."""
        self._must_run(f"probe {self.name}")
        ids = {f"{self.name}/{name}" for name in names}
        result = self.client.check(self.name, {"mesh": True})
        return [p for p in result["probes"] or [] if p["from"] in ids and p["to"] in ids and not p.get("not")]

    def _refresh(self) -> None:
        self._views = {view["id"].split("/")[-1]: view for view in self.client.elements(self.name)}

    def _view(self, name: str, anew: bool = False) -> types.ElementView:
        self._must_run(f"look at {self.name}/{name}")
        if anew or name not in self._views:
            self._refresh()
        if name not in self._views:
            raise UnknownElement(f"{self.name}/{name} does not run yet: net.start() makes what was added")
        return self._views[name]

    def _resolved(self, name: str) -> types.ElementOfResolvedInterface:
        """An element with its addresses: all of them once it runs, before that those that were said."""
        if self.running and name in self._views:
            return self._views[name]["element"]
        said = dict(self._element(name))
        interfaces = [dict(i) for i in cast("list[types.Interface]", said.get("interfaces", []))]
        if name in self._first:
            interfaces = interfaces or [{"name": ""}]
            interfaces[0] |= self._first[name]
        said["interfaces"] = interfaces
        return cast(types.ElementOfResolvedInterface, said)

    def _element(self, name: str) -> types.ElementOfInterface:
        return next(e for e in self.document.get("elements", []) if e["name"] == name)

    def _node(self, node: Node | str) -> Node:
        return self[str(node)]

    def _of(self, kind: type[_N]) -> list[_N]:
        return [node for node in self._nodes.values() if isinstance(node, kind)]

    def _free_interface(self, node: Node, given: str | None, far: Node) -> str:
        taken = node.intfNames()
        if given is None:
            return _free(far.name, taken, ".")
        if given in taken:
            raise ValueError(f"{node.name} has an interface {given} already")
        return given

    def _must_run(self, what: str) -> None:
        if not self.running:
            raise PolyplaneError(f"{what}: the network is not started; net.start() does it")

    def _close_shells(self) -> None:
        for node in self._nodes.values():
            node.closeShell()

    def _leave(self) -> None:
        if self._deletes:
            self.stop()
        else:
            self._close_shells()


def _free(name: str, taken: Iterable[str], mark: str = ".") -> str:
    """The name, or the first of name.2, name.3… that is free."""
    all_taken, number, free = set(taken), 1, name
    while free in all_taken:
        number += 1
        free = f"{name}{mark}{number}"
    return free


def _reached(probes: Iterable[types.ProbeResult], source: str, to: str, name: str) -> str:
    between = [p for p in probes if p["from"] == source and p["to"] == to]
    return name if between and all(p["reached"] for p in between) else "X"


def _rate(bits: float) -> str:
    for unit, size in (("Gbits/sec", 1e9), ("Mbits/sec", 1e6), ("Kbits/sec", 1e3)):
        if bits >= size:
            return f"{bits / size:.3g} {unit}"
    return f"{bits:.3g} bits/sec"
