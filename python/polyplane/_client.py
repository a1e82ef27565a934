"""The API, request by request. Answers are the dictionaries of _types; refusals are exceptions."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import quote, urlencode

from . import _types as types
from ._connect import Connections, choose
from ._errors import Broken, CommandError, NotRunning, refusal
from ._stream import PROTOCOL, Stream

# How long a manager that is being started again is waited for.
PATIENCE = 10.0


class Client:
    """Speaks to the manager of one instance, over its Unix socket or over TLS. Several threads may use it."""

    def __init__(self, instance: str | None = None, *, server: str | None = None, token: str | None = None,
                 place: Connections | None = None) -> None:
        self.place = place if place is not None else choose(instance, server, token)

    def ping(self) -> types.Pong:
        """Asks whether the manager is there."""
        return cast(types.Pong, self.ask("GET", path("ping")))

    def networks(self) -> list[types.NetworkStatus]:
        """The networks at a glance."""
        return cast("list[types.NetworkStatus]", self.ask("GET", path("networks")))

    def network(self, name: str) -> types.Record:
        """Everything that is stored of a network."""
        return cast(types.Record, self.ask("GET", path("networks", name)))

    def nodes(self) -> list[types.NodeStatus]:
        """The nodes of the substrate."""
        return cast("list[types.NodeStatus]", self.ask("GET", path("nodes")))

    def elements(self, network: str) -> list[types.ElementView]:
        """The elements of a network, with their state and their addresses."""
        return cast("list[types.ElementView]", self.ask("GET", path("elements"), {"network": network}))

    def links(self, network: str) -> list[types.LinkStatus]:
        """The links of a network, with their state and counters."""
        return cast("list[types.LinkStatus]", self.ask("GET", path("links"), {"network": network}))

    def apply(self, network: types.Network, *, base: int = 0, owner: str = "", dry_run: bool = False,
              overwrite: bool = False, lose_files: bool = False) -> types.ApplyResult:
        """Makes a network be like the document: all of it, or nothing.

        It is refused unless the network is at the revision `base`; 0 means any, -1 that there must be none yet.
        """
        query = {"base": str(base)} if base else {}
        query |= {"owner": owner} if owner else {}
        for name, said in (("dryRun", dry_run), ("overwrite", overwrite), ("loseFiles", lose_files)):
            if said:
                query[name] = "true"
        return cast(types.ApplyResult, self.ask("PUT", path("networks", network["name"]), query, network))

    def delete(self, network: str, *, now: bool = False) -> None:
        """Asks for a network's removal; it is gone when it is no more among `networks`."""
        self.ask("DELETE", path("networks", network), {"now": "true"} if now else {})

    def act(self, network: str, element: str, action: str) -> types.ActionResult:
        """Starts, stops, restarts, suspends or resumes an element."""
        request: types.ActionRequest = {"action": action}
        return cast(types.ActionResult, self.ask("POST", path("networks", network, "elements", element, "actions"),
                                                 body=request))

    def set(self, network: str, object: str, values: Mapping[str, str]) -> types.SetResult:
        """Sets fields of an element or a link, or of the network itself ('')."""
        request: types.SetRequest = {"object": object,
                                     "values": [{"key": key, "value": value} for key, value in values.items()]}
        return cast(types.SetResult, self.ask("PATCH", path("networks", network), body=request))

    def check(self, network: str, request: types.CheckRequest) -> types.CheckResult:
        """Sends probes from inside the elements: what the network expects, and what the request asks for."""
        return cast(types.CheckResult, self.ask("POST", path("networks", network, "check"), body=request))

    def logs(self, network: str, element: str) -> str:
        """What an element's processes printed."""
        return self._read("GET", path("networks", network, "elements", element, "logs")).decode("utf-8", "replace")

    def exec(self, network: str, element: str, args: list[str], env: Mapping[str, str] | None = None) -> Stream:
        """Begins a command inside an element, as its root."""
        command = {"args": args, "env": [f"{name}={value}" for name, value in (env or {}).items()]}
        target = path("networks", network, "elements", element, "exec")
        connection, answer = self.open("GET", target, {"command": json.dumps(command)},
                                       headers={"Connection": "Upgrade", "Upgrade": PROTOCOL})
        if answer.status != 101:
            connection.close()
            raise CommandError(f"{network}/{element}: the other side does not speak {PROTOCOL} "
                               f"(HTTP status {answer.status})")
        return Stream(connection, answer)

    def ask(self, method: str, target: str, query: Mapping[str, str] | None = None, body: object = None) -> Any:
        """One request, and its answer from JSON; None where there is nothing to tell."""
        text = self._read(method, target, query, body)
        return json.loads(text) if text else None

    def _read(self, method: str, target: str, query: Mapping[str, str] | None = None, body: object = None) -> bytes:
        connection, answer = self.open(method, target, query, body)
        try:
            return answer.read()
        except (OSError, http.client.HTTPException) as err:
            raise Broken(f"the connection to {self.place.name} broke off: {err}") from err
        finally:
            connection.close()

    def open(self, method: str, target: str, query: Mapping[str, str] | None = None, body: object = None,
             headers: Mapping[str, str] | None = None
             ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """Sends a request and returns once the head of the answer is there and says that all is well."""
        if query:
            target += "?" + urlencode(query)
        data = None if body is None else json.dumps(body).encode()
        all_headers = dict(self.place.headers)
        if data is not None:
            all_headers["Content-Type"] = "application/json"
        all_headers |= headers or {}
        deadline = time.monotonic() + PATIENCE
        while True:
            connection = self.place.connection()
            try:
                connection.request(method, target, data, all_headers)
                answer = connection.getresponse()
            except NotRunning:  # nothing was sent, so that it may be sent again
                connection.close()
                if time.monotonic() < deadline and self.place.returns():
                    time.sleep(0.02)
                    continue
                raise
            except (OSError, http.client.HTTPException) as err:
                connection.close()
                # A question may be asked twice. A command inside an element begins with GET as well, and may not.
                if method == "GET" and headers is None and time.monotonic() < deadline and self.place.returns():
                    time.sleep(0.02)
                    continue
                raise Broken(f"the connection to {self.place.name} broke off: {err}") from err
            if answer.status >= 400:
                with answer:
                    text = answer.read(1 << 20)
                connection.close()
                raise refusal(answer.status, text)
            return connection, answer


def path(*segments: str) -> str:
    """The path of a resource; what segments have in them does not change which it is."""
    return "/v1/" + "/".join(quote(segment, safe="") for segment in segments)
