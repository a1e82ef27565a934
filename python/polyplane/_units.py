"""Amounts as people write them, to the API's plain numbers: bit/s, bytes, thousandths of a core, ns, a share."""

from __future__ import annotations

import ipaddress
import re
from decimal import Decimal, InvalidOperation

_BANDWIDTH = {"bit": 1, "kbit": 10**3, "Mbit": 10**6, "Gbit": 10**9, "Tbit": 10**12}
_SIZE = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_TIME = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}

_AMOUNT = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-zµ]+)\s*")


def _amount(text: str, units: dict[str, int]) -> int | None:
    match = _AMOUNT.fullmatch(text)
    if match is None or match.group(2) not in units:
        return None
    return round(Decimal(match.group(1)) * units[match.group(2)])


def _decimal(text: str) -> Decimal:
    """A number; -1, which nothing may be, if it is none."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        return Decimal(-1)
    return number if number.is_finite() else Decimal(-1)


def bandwidth(value: str | float) -> int:
    """bit/s of '10Mbit', or of a number of Mbit/s as Mininet has it."""
    if isinstance(value, str):
        got = _amount(value, _BANDWIDTH)
        if got is None:
            raise ValueError(f"{value!r} is no bandwidth; write it like '10Mbit' or '1.5Gbit' (bit, kbit, Mbit, Gbit, "
                             "Tbit; steps of 1000), or as a number of Mbit/s")
        return got
    number = _decimal(str(value))
    if isinstance(value, bool) or number < 0:
        raise ValueError(f"{value!r} is no bandwidth; write a number of Mbit/s, or like '10Mbit'")
    return round(number * 10**6)


def size(value: str) -> int:
    """Bytes of '512MiB'."""
    got = _amount(value, _SIZE) if isinstance(value, str) else None
    if got is None:
        raise ValueError(f"{value!r} is no size; write it like '512MiB' or '2GiB' (B, KiB, MiB, GiB, TiB; steps of "
                         "1024)")
    return got


def span(value: str) -> int:
    """Nanoseconds of '5ms'."""
    got = _amount(value, _TIME) if isinstance(value, str) else None
    if got is None:
        raise ValueError(f"{value!r} is no time span; write it like '10ms' or '1.5s' (ns, us, ms, s, m, h)")
    return got


def cores(value: str | float) -> int:
    """Thousandths of a core of 0.5."""
    number = _decimal(str(value))
    if isinstance(value, bool) or number < 0:
        raise ValueError(f"{value!r} is no number of cores; write it like 0.5 or 2")
    return round(number * 1000)


def percent(value: str | float) -> float:
    """The share of 1 (percent, as Mininet has it) or of '1%'."""
    number = _decimal(str(value).strip().removesuffix("%").strip())
    if isinstance(value, bool) or not 0 <= number <= 100:
        raise ValueError(f"{value!r} is no loss; write it in percent, from 0 to 100")
    return float(number / 100)


def interface_address(text: str) -> str:
    """An address with its prefix length, as an interface has it."""
    if "/" not in text:
        raise ValueError(f"{text!r} says nothing of its subnet; write it like '10.0.0.1/24'")
    return str(ipaddress.ip_interface(text))


def loopback_address(text: str) -> str:
    """The same for lo, where an address alone is a subnet of itself."""
    return str(ipaddress.ip_interface(text))


def route(text: str) -> dict[str, object]:
    """A static route, like '10.1.0.0/16 via 10.0.0.2' or 'blackhole 10.2.0.0/16'."""
    words = text.replace(",", " ").split()
    got: dict[str, object] = {}
    if words and words[0] in ("unicast", "blackhole", "unreachable", "prohibit"):
        got["type"] = words.pop(0)
    if not words:
        raise ValueError(f"{text!r} is no route; write it like '10.1.0.0/16 via 10.0.0.2'")
    to, at = words[0], 1
    via: list[str] = []
    while at < len(words):
        match words[at:at + 2]:
            case ["via", hop]:
                via.append(str(ipaddress.ip_address(hop)))
                at += 2
                while at < len(words) and re.fullmatch(r"[0-9A-Fa-f.:]*[.:][0-9A-Fa-f.:]*", words[at]):
                    via.append(str(ipaddress.ip_address(words[at])))
                    at += 1
            case ["dev", name]:
                got["interface"] = name
                at += 2
            case ["metric", number] if number.isdecimal():
                got["metric"] = int(number)
                at += 2
            case _:
                raise ValueError(f"{text!r}: {words[at]!r} is not understood; after the prefix come via ADDRESS, "
                                 "dev INTERFACE, metric NUMBER")
    if to == "default":
        to = "::/0" if via and ":" in via[0] else "0.0.0.0/0"
    got["to"] = str(ipaddress.ip_network(to))
    if via:
        got["via"] = via
    return got
