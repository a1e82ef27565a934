"""Which manager to speak to, and how: the instance's Unix socket, or TLS with a token, chosen as the commands do."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import os
import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ._errors import NotRunning, PolyplaneError

DEFAULT_PORT = 7455
# Every manager's certificate has this name, whatever machine it is on (package trust).
SERVER_NAME = "manager.polyplane.internal"
DIAL_SECONDS = 10.0

_TOKEN = re.compile(r"pp1\.[a-z2-7]{10}\.[a-z2-7]{26}\.([A-Za-z0-9_-]{43})")


def user() -> str:
    """Whose networks are one's own: the person who began the program, also behind sudo."""
    env = os.environ.get
    return env("SUDO_USER") or env("USER") or env("LOGNAME") or "root"


class Connections:
    """Where the manager is; makes connections to it."""

    @property
    def name(self) -> str:
        """What errors call the manager."""
        raise NotImplementedError

    @property
    def headers(self) -> dict[str, str]:
        """What every request has beside its own: that networks are called as people call them."""
        return {"Polyplane-Names": user()}

    def connection(self) -> http.client.HTTPConnection:
        """A new connection, which connects when it is first used."""
        raise NotImplementedError

    def returns(self) -> bool:
        """Whether a manager that does not answer is being started again."""
        return False


class Local(Connections):
    """An instance on this machine."""

    def __init__(self, instance: str, run: str = "/run/polyplane") -> None:
        self.instance = instance
        self.socket = os.path.join(run, instance, "manager.sock")
        self.lock = os.path.join(run, instance + ".lock")

    @property
    def name(self) -> str:
        return f"polyplane '{self.instance}'"

    def connection(self) -> http.client.HTTPConnection:
        return _UnixConnection(self)

    def returns(self) -> bool:
        """Tells it by the instance's lock, which names the process that keeps the manager running."""
        try:
            holder = json.loads(Path(self.lock).read_text())
            if holder["what"] != "up":
                return False
            os.kill(int(holder["pid"]), 0)
        except PermissionError:
            return True
        except (OSError, ValueError, KeyError, TypeError):
            return False
        return True


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, place: Local) -> None:
        super().__init__("polyplane")
        self.place = place

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.connect(self.place.socket)
        except OSError as err:
            self.sock.close()
            if isinstance(err, PermissionError):
                raise NotRunning(f"{self.place.name} does not let this user in ({self.place.socket}): run it as root"
                                 ) from err
            name = self.place.instance
            command = "polyplane up" + ("" if name == "default" else f" --instance {name}")
            raise NotRunning(f"{self.place.name} is not running: start it with `{command}`") from err


class Remote(Connections):
    """A manager on another machine, reached over TLS with a user's token."""

    def __init__(self, server: str, token: str) -> None:
        self.host, self.port = split_address(server)
        self.token = token.strip()
        match = _TOKEN.fullmatch(self.token)
        if match is None:
            raise PolyplaneError('this is no token; one begins with "pp1." and has four parts with dots between '
                                 "them, as `polyplane token create` prints it")
        self.pin = base64.urlsafe_b64decode(match.group(1) + "=")
        self._context: ssl.SSLContext | None = None

    @property
    def name(self) -> str:
        return f"the manager at {self.host}:{self.port}"

    @property
    def headers(self) -> dict[str, str]:
        return super().headers | {"Authorization": "Bearer " + self.token}

    def connection(self) -> http.client.HTTPConnection:
        return _TLSConnection(self, self.context())

    def context(self) -> ssl.SSLContext:
        """Trusts the one authority whose fingerprint is in the token, and no other.

        A certificate is public, so it is asked for before anything is trusted; the token is sent after it fits only.
        """
        if self._context is None:
            unknown = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            unknown.minimum_version = ssl.TLSVersion.TLSv1_3
            unknown.check_hostname = False
            unknown.verify_mode = ssl.CERT_NONE
            pem = self._authority(_TLSConnection(self, unknown))
            try:
                der = ssl.PEM_cert_to_DER_cert(pem.decode("ascii").strip())
            except ValueError:
                der = b""
            if hashlib.sha256(der).digest() != self.pin:
                raise NotRunning(f"{self.name} cannot be reached: who answers there is not the manager that the token "
                                 "is of (its certificate authority is another)")
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.load_verify_locations(cadata=der)
            self._context = context
        return self._context

    def _authority(self, connection: http.client.HTTPConnection) -> bytes:
        try:
            connection.request("GET", "/v1/authority")
            answer = connection.getresponse()
            body = answer.read(64 << 10)
            if answer.status != 200:
                raise NotRunning(f"{self.name} cannot be reached: it does not say who its authority is "
                                 f"(HTTP status {answer.status})")
            return body
        except (OSError, http.client.HTTPException) as err:
            raise NotRunning(f"{self.name} cannot be reached: {err}") from err
        finally:
            connection.close()


class _TLSConnection(http.client.HTTPConnection):
    def __init__(self, place: Remote, context: ssl.SSLContext) -> None:
        super().__init__(place.host, place.port)
        self.place, self.context = place, context

    def connect(self) -> None:
        try:
            plain = socket.create_connection((self.place.host, self.place.port), DIAL_SECONDS)
        except OSError as err:
            raise NotRunning(f"{self.place.name} cannot be reached: {err}") from err
        try:
            self.sock = self.context.wrap_socket(plain, server_hostname=SERVER_NAME)
        except ssl.SSLCertVerificationError as err:
            plain.close()
            raise NotRunning(f"{self.place.name} cannot be reached: who answers there is not the manager that the "
                             f"token is of ({err.verify_message})") from err
        except OSError as err:
            plain.close()
            raise NotRunning(f"{self.place.name} cannot be reached: {err}") from err
        self.sock.settimeout(None)
        # A machine that has gone is noticed all the same, and a quiet command inside an element is none that has gone.
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15)


def split_address(text: str) -> tuple[str, int]:
    """Splits HOST:PORT; without a port it is the manager's usual one."""
    match = re.fullmatch(r"\[([0-9A-Fa-f:.]+)\](?::(\d+))?|([^:\[\]\s/]+)(?::(\d+))?", text)
    if match is None:
        if re.fullmatch(r"[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*", text):
            return text, DEFAULT_PORT
        raise PolyplaneError(f"{text!r} does not say where the manager is: HOST:PORT was expected")
    port = int(match.group(2) or match.group(4) or DEFAULT_PORT)
    if not 0 < port < 65536:
        raise PolyplaneError(f"{text!r} does not say where the manager is: {port} is no port from 1 to 65535")
    return match.group(1) or match.group(3), port


@dataclass(frozen=True)
class Login:
    """What `polyplane login` keeps."""

    server: str = ""
    token: str = ""


def read_login(environ: Mapping[str, str]) -> Login:
    """Reads it; an empty one when there is none."""
    directory = environ.get("XDG_CONFIG_HOME", "")
    if not directory and environ.get("HOME"):
        directory = os.path.join(environ["HOME"], ".config")
    if not os.path.isabs(directory):
        return Login()
    path = os.path.join(directory, "polyplane", "login.json")
    try:
        kept = json.loads(Path(path).read_text())
        return Login(kept["server"], kept["token"])
    except FileNotFoundError:
        return Login()
    except (OSError, ValueError, KeyError, TypeError) as err:
        raise PolyplaneError(f"{path} cannot be used ({err}): log in again, or delete it") from err


def choose(instance: str | None = None, server: str | None = None, token: str | None = None,
           environ: Mapping[str, str] | None = None, run: str = "/run/polyplane") -> Connections:
    """The manager that the arguments, the environment or a login name, in this order, as for the commands."""
    env = os.environ if environ is None else environ
    if instance is not None and server is not None:
        raise PolyplaneError("instance and server exclude each other: an instance is one of this machine")
    if not instance and server is None:
        instance, server = env.get("POLYPLANE_INSTANCE") or None, env.get("POLYPLANE_SERVER") or None
        if instance is not None and server is not None:
            raise PolyplaneError(f"POLYPLANE_INSTANCE={instance} is an instance of this machine, and POLYPLANE_SERVER="
                                 f"{server} a manager elsewhere: unset one of them, or say instance= or server=")
    login = Login()
    if token is None and (server is not None or instance is None):
        login = read_login(env)
    if server is None:
        if instance is not None or not login.server:
            return Local(instance or "default", run)
        server = login.server
    if token is None:
        token = env.get("POLYPLANE_TOKEN") or None
    if token is None and env.get("POLYPLANE_TOKEN_FILE"):
        try:
            token = Path(env["POLYPLANE_TOKEN_FILE"]).read_text()
        except OSError as err:
            raise PolyplaneError(f"POLYPLANE_TOKEN_FILE: {err}") from err
    if token is None and login.server and split_address(login.server) == split_address(server):
        token = login.token
    if token is None:
        raise PolyplaneError(f"no token for the manager at {server}: `polyplane login {server}` asks for it, or "
                             "POLYPLANE_TOKEN holds it")
    return Remote(server, token)
