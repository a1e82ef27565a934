"""A manager in memory, on a Unix socket. Commands inside elements run here, on this machine."""

from __future__ import annotations

import copy
import json
import os
import socket
import socketserver
import struct
import subprocess
import tempfile
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


class Fake:
    """Serves until close. Tests look at `requests`, and set what is to be refused or to fail."""

    def __init__(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        os.mkdir(os.path.join(self.directory.name, "default"))
        self.records: dict[str, dict[str, Any]] = {}
        self.owners: dict[str, str] = {}
        self.requests: list[str] = []
        self.unready = 0  # so many questions for networks until one that was applied runs
        self.failed = ""  # what elements that have failed say
        self.late = 0  # so many applies are refused since the agents are starting
        self.unreached: set[str] = set()
        self.revision = 0
        self.phases: dict[str, str] = {}
        self.set_values: list[Any] = []
        self.problem: dict[str, Any] | None = None
        handler = type("Handler", (_Handler,), {"fake": self})
        self.server = _Server(os.path.join(self.directory.name, "default", "manager.sock"), handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
        self.directory.cleanup()


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


class _Handler(BaseHTTPRequestHandler):
    fake: Fake
    protocol_version = "HTTP/1.1"

    def address_string(self) -> str:
        return "unix"

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self.answer("GET")

    def do_PUT(self) -> None:
        self.answer("PUT")

    def do_POST(self) -> None:
        self.answer("POST")

    def do_PATCH(self) -> None:
        self.answer("PATCH")

    def do_DELETE(self) -> None:
        self.answer("DELETE")

    def send(self, status: int, value: object = None, media: str = "application/json") -> None:
        body = b"" if value is None else value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", media)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if body:
            self.wfile.write(body)

    def refuse(self, status: int, detail: str, **more: object) -> None:
        self.send(status, {"title": "x", "status": status, "detail": detail, **more}, "application/problem+json")

    def answer(self, method: str) -> None:
        f, url = self.fake, urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "null")
        f.requests.append(f"{method} {url.path}")
        if f.problem is not None:
            self.send(f.problem["status"], f.problem)
            return
        match [method, *(unquote(part) for part in url.path.split("/")[2:])]:
            case ["GET", "ping"]:
                self.send(200, {"instance": "default", "networks": len(f.records)})
            case ["GET", "networks"]:
                f.unready = max(0, f.unready - 1)
                phase = "failed" if f.failed else "starting" if f.unready else "running"
                self.send(200, [{"name": name, "phase": phase, "revision": r["revision"], "failed": int(bool(f.failed))}
                                for name, r in f.records.items()])
            case ["GET", "nodes"]:
                self.send(200, [{"name": "n1", "revision": f.revision}])
            case ["GET", "networks", name]:
                if name in f.records:
                    self.send(200, f.records[name])
                else:
                    self.refuse(404, f"there is no network {name}")
            case ["PUT", "networks", name]:
                self.apply(name, int(query.get("base", 0)), query.get("owner", ""), body)
            case ["DELETE", "networks", name]:
                f.records.pop(name)
                self.send(204)
            case ["PATCH", "networks", name]:
                f.set_values.append(body)
                f.records[name]["revision"] += 1
                self.send(200, {"record": f.records[name], "before": f.records[name], "changed": True,
                                "nodes": {"n1": f.revision}})
            case ["GET", "elements"]:
                self.send(200, self.views(query["network"]))
            case ["POST", "networks", name, "check"]:
                self.send(200, {"network": name, "ok": not f.unreached, "probes": self.probes(name)})
            case ["POST", "networks", name, "elements", element, "actions"]:
                f.phases[element] = {"stop": "stopped", "suspend": "suspended"}.get(body["action"], "running")
                f.records[name]["revision"] += 1
                self.send(200, {"changed": True, "revision": f.revision})
            case ["GET", "networks", _, "elements", _, "logs"]:
                self.send(200, b"it began\n", "text/plain")
            case ["GET", "networks", _, "elements", element, "exec"]:
                self.exec(element, json.loads(query["command"]))
            case _:
                self.refuse(404, f"there is no {url.path}")

    def apply(self, name: str, base: int, owner: str, network: dict[str, Any]) -> None:
        f, before = self.fake, self.fake.records.get(name)
        if f.late > 0:
            f.late -= 1
            self.refuse(503, "the agent of node n1 has not reported")
        elif base == -1 and before is not None or base > 0 and (before is None or before["revision"] != base):
            self.refuse(409, f"network {name} was changed meanwhile")
        else:
            f.revision += 1
            record = {"network": copy.deepcopy(network), "revision": (before["revision"] if before else 0) + 1}
            f.records[name], f.owners[name] = record, owner
            self.send(200, {"record": record, "changed": True} | ({"before": before} if before else {}))

    def views(self, name: str) -> list[dict[str, Any]]:
        views = []
        for at, element in enumerate(self.fake.records[name]["network"]["elements"]):
            interfaces = [{"addresses": [f"fd00::{at}/64", f"10.0.{at}.{k + 1}/24"],
                           "mac": f"02:00:00:00:0{at}:0{k}"} | i
                          for k, i in enumerate(element.get("interfaces", []))]
            phase = "failed" if self.fake.failed else self.fake.phases.get(element["name"], "running")
            views.append({"id": f"{name}/{element['name']}", "node": "n1", "phase": phase, "message": self.fake.failed,
                          "element": element | {"interfaces": interfaces}})
        return views

    def probes(self, name: str) -> list[dict[str, Any]]:
        hosts = [e["name"] for e in self.fake.records[name]["network"]["elements"] if e["kind"] == "host"]
        bad = self.fake.unreached
        return [{"from": f"{name}/{a}", "to": f"{name}/{b}", "address": "10.0.0.1", "ok": True,
                 "reached": a not in bad and b not in bad} for a in hosts for b in hosts if a != b]

    def exec(self, element: str, command: dict[str, Any]) -> None:
        if element == "broken":
            self.close_connection = True
            self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\r\n\x01\x00\x00")
            return
        self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"
                         b"Upgrade: polyplane-stream\r\n\r\n")
        self.close_connection = True
        writing = threading.Lock()

        def frame(kind: int, data: bytes) -> None:
            with writing:
                self.wfile.write(struct.pack(">BI", kind, len(data)) + data)
        if element == "refusing":
            frame(4, b'{"code": 0, "error": "element lab/refusing: run sh: it is stopped"}')
            return
        env = dict(os.environ) | dict(v.split("=", 1) for v in command["env"] or [])
        process = subprocess.Popen(command["args"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env=env, start_new_session=True)
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None

        def copy_out(kind: int, source: Any) -> None:
            while data := source.read1(1 << 16):
                try:
                    frame(kind, data)
                except OSError:
                    pass  # nobody is there any more; the command is to be read to its end all the same
        readers = [threading.Thread(target=copy_out, args=(1, process.stdout), daemon=True),
                   threading.Thread(target=copy_out, args=(2, process.stderr), daemon=True)]

        def feed() -> None:
            assert process.stdin is not None
            while True:
                head = self.rfile.read(5)
                if len(head) < 5:
                    break
                kind, size = struct.unpack(">BI", head)
                data = self.rfile.read(size)
                try:
                    if kind == 5:
                        process.stdin.close()
                    else:
                        process.stdin.write(data)
                        process.stdin.flush()
                except OSError:
                    pass  # the command does not read it
            try:
                os.killpg(process.pid, 9)
            except ProcessLookupError:
                pass
        feeder = threading.Thread(target=feed, daemon=True)
        for thread in [*readers, feeder]:
            thread.start()
        try:
            self.watch(process, frame, readers)
        finally:
            self.connection.shutdown(socket.SHUT_RDWR)
            feeder.join()
            process.stdout.close()
            process.stderr.close()
            try:
                process.stdin.close()
            except OSError:
                pass  # what the command did not read is lost

    def watch(self, process: subprocess.Popen[bytes], frame: Callable[[int, bytes], None],
              readers: list[threading.Thread]) -> None:
        """Waits for a command's end, and tells it."""
        status = process.wait()
        try:
            os.killpg(process.pid, 9)  # what a shell left, as the end of an element's last command does
        except ProcessLookupError:
            pass
        for thread in readers:
            thread.join()
        try:
            frame(4, json.dumps({"code": status}).encode())
        except OSError:
            pass  # nobody is there any more
