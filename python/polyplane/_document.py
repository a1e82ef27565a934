"""Makes the API's document of a network from what a script says of elements and links."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from . import _types as types
from . import _units as units


def element(kind: str, name: str, said: Mapping[str, Any]) -> types.ElementOfInterface:
    """An element, from its keyword arguments; those that are None say nothing."""
    done: dict[str, Any] = {"name": name, "kind": kind}
    what = f"{kind} {name}"
    for key, value in said.items():
        if value is None:
            continue
        try:
            _say(done, kind, key, value)
        except ValueError as err:
            raise ValueError(f"{what}: {key}: {err}") from None
        except TypeError as err:
            raise TypeError(f"{what}: {err}") from None
    if isinstance(done.get("config"), str):
        software = done.get("software", "frr")
        done["config"] = {"bird.conf" if software == "bird" else "frr.conf": done["config"]}
    return cast(types.ElementOfInterface, done)


def _say(done: dict[str, Any], kind: str, key: str, value: Any) -> None:
    if key in _PROTOCOLS and kind == "router":
        intent = _intent(key, value)
        if intent is not None:
            done.setdefault("routing", {})[key] = intent
    elif key in _VALUES:
        name, convert = _VALUES[key]
        done[name] = convert(value)
    elif key in _PLAIN:
        done[key] = value
    else:
        alike = difflib.get_close_matches(key, known(kind), 1)
        hint = f"; did you mean {alike[0]}?" if alike else "; there are " + ", ".join(known(kind))
        raise TypeError(f"a {kind} has no {key!r}{hint}")


def known(kind: str) -> list[str]:
    """What can be said of an element of a kind, as keyword arguments."""
    all_keys = set(_PLAIN) | set(_VALUES) | (_PROTOCOLS if kind == "router" else set())
    return sorted(all_keys - (_OTHERS.get(kind) or set()))


def _many(convert: Callable[[str], str]) -> Callable[[Any], list[str]]:
    def all_of(value: Any) -> list[str]:
        return [convert(v) for v in ([value] if isinstance(value, str) else value)]
    return all_of


def _route(value: Any) -> Any:
    return units.route(value) if isinstance(value, str) else dict(value)


def _routes(value: Any) -> list[Any]:
    return [_route(v) for v in ([value] if isinstance(value, (str, Mapping)) else value)]


def _hop(text: str) -> str:
    return re.sub(r"^\s*via\s+", "", text).strip()


# Of the API's own keys of an element, these have another form in scripts.
_VALUES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "cpu": ("cpu", units.cores),
    "memory": ("memory", units.size),
    "disk": ("disk", units.size),
    "loopback": ("loopback", _many(units.loopback_address)),
    "gateway": ("gateways", _many(_hop)),
    "defaultRoute": ("gateways", _many(_hop)),
    "routes": ("routes", _routes),
    "prefixes": ("prefixes", _many(str)),
}
_PROTOCOLS = {"ospf", "ospf6", "isis", "bgp", "rip"}
_OTHERS = {
    "host": {"software", "hook", "config", "prefixes", "routerID"},
    "switch": {"software", "hook", "config", "loopback", "gateway", "defaultRoute", "routes", "routerID"},
    "router": {"prefixes"},
}
# The rest is as the API has it, also what later versions of it may have.
_PLAIN = set(types.ElementOfInterface.__annotations__) - {
    "name", "kind", "interfaces", "routing", "gateways"} - set(_VALUES)


def _intent(protocol: str, value: Any) -> dict[str, Any] | None:
    """A routing protocol: True for its defaults, a number for BGP's AS, or a mapping of what there is to say."""
    if value is False:
        return None
    if value is True and protocol != "bgp":
        return {}
    if protocol == "bgp" and isinstance(value, int) and not isinstance(value, bool):
        return {"as": value}
    if not isinstance(value, Mapping):
        form = "the number of its AS, or a mapping like {'as': 65001}" if protocol == "bgp" else "True or a mapping"
        raise ValueError(f"{value!r} is not understood: {form} was expected")
    return dict(value)


def link(said: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """A link's settings, and which of them are stated as zero."""
    done: dict[str, Any] = {}
    for key, value in said.items():
        if value is None:
            continue
        if key not in _LINK:
            alike = difflib.get_close_matches(key, _LINK, 1)
            hint = f"; did you mean {alike[0]}?" if alike else "; there are " + ", ".join(sorted(_LINK))
            raise TypeError(f"a link has no {key!r}{hint}")
        name, convert = _LINK[key]
        if name in done:
            raise ValueError(f"{key}: it says the same as another argument does")
        try:
            done[name] = convert(value)
        except ValueError as err:
            raise ValueError(f"{key}: {err}") from None
    return done, [name for name in _NUMBERS if done.get(name) == 0]


_NUMBERS = ("bandwidth", "delay", "jitter", "loss")
_LINK: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "bw": ("bandwidth", units.bandwidth),
    "bandwidth": ("bandwidth", units.bandwidth),
    "delay": ("delay", units.span),
    "jitter": ("jitter", units.span),
    "loss": ("loss", units.percent),
    "mtu": ("mtu", int),
    "name": ("name", str),
    "prefixes": ("prefixes", _many(str)),
}
for _key in types.Link.__annotations__:
    if _key != "ends":  # what later versions of the API may have is as they have it
        _LINK.setdefault(_key, (_key, lambda value: value))

_EXPECTATION = re.compile(r"(\S+)\s+(reaches|does\s+not\s+reach)\s+(\S+)(?:\s+over\s+(ipv4|ipv6))?")


def expectation(text: str) -> types.Expectation:
    """'h1 reaches h2', 'h1 does not reach h3', each with 'over ipv6' or without."""
    match = _EXPECTATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no expectation; write 'h1 reaches h2', 'h1 does not reach h3' or 'h1 reaches h2 "
                         "over ipv6'")
    said: types.Expectation = {"from": match.group(1), "to": match.group(3)}
    if match.group(2) != "reaches":
        said["not"] = True
    if match.group(4):
        said["family"] = match.group(4)
    return said
