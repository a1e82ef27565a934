"""What can go wrong, as exceptions. Their texts are the manager's own: what was refused, and what would be right."""

from __future__ import annotations

import json
from dataclasses import dataclass


class PolyplaneError(Exception):
    """Anything that goes wrong with polyplane."""


class NotRunning(PolyplaneError):
    """Nobody serves the instance's API, or the manager at the address cannot be reached."""


class NotReady(PolyplaneError):
    """A network was accepted, and does not run in time, or something of it has failed."""


class Broken(PolyplaneError):
    """The connection broke before a command inside an element ended, or an answer was whole."""


class CommandError(PolyplaneError):
    """A command could not be run, or watched to its end."""


@dataclass(frozen=True)
class Reason:
    """One of the reasons of a refusal."""

    message: str
    field: str = ""  # where in the object, for problems with documents
    name: str = ""  # the object's name, likewise


class Refused(PolyplaneError):
    """The manager, or an agent, refuses. `status` is HTTP's, `detail` says what was refused, `reasons` say why."""

    def __init__(self, status: int, detail: str, reasons: tuple[Reason, ...] = ()) -> None:
        self.status, self.detail, self.reasons = status, detail, reasons
        text = detail
        if len(reasons) == 1:
            text += ": " + reasons[0].message
        elif reasons:
            text += ":" + "".join("\n  " + reason.message for reason in reasons)
        super().__init__(text)


class Invalid(Refused):
    """What was asked for is wrong, or does not fit."""


class NotFound(Refused):
    """There is no such object."""


class Conflict(Refused):
    """Somebody else has changed the object meanwhile, or its state forbids what was asked for."""


class Denied(Refused):
    """Whoever asks may not, or is not known."""


class Busy(Refused):
    """Too much is under way; later it may be done."""


_KINDS: dict[int, type[Refused]] = {
    400: Invalid, 401: Denied, 403: Denied, 404: NotFound, 409: Conflict, 413: Invalid, 422: Invalid, 429: Busy,
    503: Busy,
}


def refusal(status: int, body: bytes) -> Refused:
    """The exception for an answer that is a problem detail (RFC 9457)."""
    kind = _KINDS.get(status, Refused)
    try:
        problem = json.loads(body)
    except ValueError:
        problem = None
    if not isinstance(problem, dict) or not (problem.get("detail") or problem.get("title")):
        return kind(status, body.decode("utf-8", "replace").strip() or f"HTTP status {status}")
    reasons = []
    for error in problem.get("errors") or []:
        message = error.get("message", "")
        if error.get("location"):
            message = error["location"] + ": " + message
        parts = error.get("problems") or []
        only = parts[0] if len(parts) == 1 else {}
        reasons.append(Reason(message, only.get("field", ""), only.get("name", "")))
    return kind(status, problem.get("detail") or problem["title"], tuple(reasons))
