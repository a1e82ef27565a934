"""Which manager a script speaks to, and the units."""

from __future__ import annotations

import json
import os
import tempfile
import unittest
from collections.abc import Callable
from pathlib import Path

from polyplane import PolyplaneError, _units
from polyplane._connect import Connections, Local, Remote, choose, split_address

TOKEN = "pp1." + "a" * 10 + "." + "b" * 26 + "." + "A" * 43
OTHER = "pp1." + "c" * 10 + "." + "d" * 26 + "." + "A" * 43


class Choosing(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.home = directory.name

    def login(self, text: str) -> None:
        path = Path(self.home, ".config", "polyplane", "login.json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def place(self, instance: str | None = None, server: str | None = None, token: str | None = None,
              **environ: str) -> str:
        return describe(choose(instance, server, token, {"HOME": self.home} | environ, "/run"))

    def test_local(self) -> None:
        self.assertEqual(self.place(), "/run/default/manager.sock")
        self.assertEqual(self.place(POLYPLANE_INSTANCE="b"), "/run/b/manager.sock")
        self.assertEqual(self.place("a", POLYPLANE_INSTANCE="b", POLYPLANE_SERVER="x"), "/run/a/manager.sock")

    def test_remote(self) -> None:
        self.assertEqual(self.place(server="s:1", token=TOKEN), f"s:1 {TOKEN}")
        self.assertEqual(self.place(POLYPLANE_SERVER="s", POLYPLANE_TOKEN=TOKEN), f"s:7455 {TOKEN}")
        file = Path(self.home, "token")
        file.write_text(TOKEN + "\n")
        self.assertEqual(self.place(server="s", token=TOKEN, POLYPLANE_INSTANCE="b"), f"s:7455 {TOKEN}")
        self.assertEqual(self.place(server="s:1", POLYPLANE_TOKEN_FILE=str(file)), f"s:1 {TOKEN}")

    def test_login(self) -> None:
        self.login(json.dumps({"server": "kept:7455", "token": OTHER}))
        self.assertEqual(self.place(), f"kept:7455 {OTHER}")
        self.assertEqual(self.place("default"), "/run/default/manager.sock")
        self.assertEqual(self.place(server="kept"), f"kept:7455 {OTHER}")
        self.assertEqual(self.place(POLYPLANE_TOKEN=TOKEN), f"kept:7455 {TOKEN}")
        with self.assertRaisesRegex(PolyplaneError, "no token for the manager at other:1"):
            self.place(server="other:1")
        self.login("{")
        with self.assertRaisesRegex(PolyplaneError, "login.json cannot be used"):
            self.place()

    def test_mistakes(self) -> None:
        mistakes: list[tuple[Callable[[], object], str]] = [
            (lambda: self.place(server="s", token="nonsense"), "this is no token"),
            (lambda: self.place("a", "s", TOKEN), "exclude each other"),
            (lambda: self.place(POLYPLANE_INSTANCE="b", POLYPLANE_SERVER="s", POLYPLANE_TOKEN=TOKEN),
             "POLYPLANE_INSTANCE=b is an instance of this machine, and POLYPLANE_SERVER=s a manager elsewhere"),
            (lambda: self.place(server="s:99999", token=TOKEN), "99999 is no port"),
            (lambda: self.place(server="http://s/", token=TOKEN), "HOST:PORT was expected"),
            (lambda: self.place(server="s", POLYPLANE_TOKEN_FILE="/nonexistent"), "POLYPLANE_TOKEN_FILE"),
        ]
        for wrong, words in mistakes:
            with self.subTest(words), self.assertRaisesRegex(PolyplaneError, words):
                wrong()

    def test_addresses(self) -> None:
        for text, want in (("h", ("h", 7455)), ("h:1", ("h", 1)), ("192.0.2.1:2", ("192.0.2.1", 2)),
                           ("2001:db8::1", ("2001:db8::1", 7455)), ("[2001:db8::1]:3", ("2001:db8::1", 3))):
            self.assertEqual(split_address(text), want)


def describe(place: Connections) -> str:
    if isinstance(place, Local):
        return place.socket
    assert isinstance(place, Remote)
    return f"{place.host}:{place.port} {place.token}"


class ReturningManager(unittest.TestCase):
    def test_lock(self) -> None:
        with tempfile.TemporaryDirectory() as run:
            place, lock = Local("x", run), Path(run, "x.lock")
            self.assertFalse(place.returns())
            for text, want in ((json.dumps({"pid": os.getpid(), "what": "up"}), True),
                               (json.dumps({"pid": os.getpid(), "what": "down"}), False), ("", False), ("[]", False)):
                lock.write_text(text)
                self.assertEqual(place.returns(), want, text)


class Units(unittest.TestCase):
    def test_values(self) -> None:
        for got, want in (
            (_units.bandwidth(10), 10**7), (_units.bandwidth(0.1), 10**5), (_units.bandwidth("8kbit"), 8000),
            (_units.size("1.5 GiB"), 3 << 29), (_units.span("1.5ms"), 1_500_000), (_units.span("2us"), 2000),
            (_units.cores(0.25), 250), (_units.cores("2"), 2000), (_units.percent(1), 0.01),
            (_units.percent("0.1%"), 0.001),
            (_units.percent(0), 0.0), (_units.loopback_address("2001:db8::1"), "2001:db8::1/128"),
            (_units.route("default via 2001:db8::1 dev r1"), {"to": "::/0", "via": ["2001:db8::1"], "interface": "r1"}),
        ):
            self.assertEqual(got, want)

    def test_mistakes(self) -> None:
        mistakes: list[Callable[[], object]] = [
            lambda: _units.bandwidth("10"), lambda: _units.bandwidth(-1), lambda: _units.bandwidth(True),
            lambda: _units.bandwidth(float("nan")), lambda: _units.size("10"), lambda: _units.span("-1s"),
            lambda: _units.cores(-1), lambda: _units.percent("all"), lambda: _units.percent(float("nan")),
            lambda: _units.interface_address("10.0.0.1/33"), lambda: _units.route(""),
            lambda: _units.route("10.0.0.1/8"), lambda: _units.route("10.0.0.0/8 metric high")]
        for wrong in mistakes:
            with self.assertRaises(ValueError):
                wrong()
