"""Networks against a manager in memory."""

from __future__ import annotations

import contextlib
import io
import os
import unittest
from collections.abc import Callable
from unittest import mock

from polyplane import (Broken, Busy, CommandError, Conflict, Invalid, Network, NotReady, NotRunning, PolyplaneError,
                       Topo, UnknownElement, _network)
from polyplane._client import Client
from polyplane._connect import Local

from .fake import Fake


class Case(unittest.TestCase):
    def setUp(self) -> None:
        self.fake = Fake()
        self.addCleanup(self.fake.close)
        self.client = Client(place=Local("default", self.fake.directory.name))

    def net(self, topo: Topo | None = None, replace: bool = False, name: str = "lab") -> Network:
        return Network(name, topo, replace=replace, client=self.client)

    def duo(self) -> Network:
        net = self.net()
        net.addLink(net.addHost("h1"), net.addRouter("r1", ospf=True))
        net.addLink(net.addHost("h2"), "r1")
        return net


class Life(Case):
    def test_whole_life(self) -> None:
        self.fake.unready = 3
        with mock.patch.dict(os.environ, {"SUDO_USER": "ann"}):
            with self.duo() as net:
                self.assertTrue(net.running)
                self.assertEqual(self.fake.owners["lab"], "ann")
                self.assertEqual(net["h1"].IP(), "10.0.0.1")
                self.assertEqual(net["r1"].IP("h2"), "10.0.1.2")
                self.assertEqual(net["r1"].MAC("h2"), "02:00:00:00:01:01")
                self.assertEqual(net["r1"].intfNames(), ["h1", "h2"])
        self.assertEqual(self.fake.records, {})
        self.assertFalse(net.running)
        with self.assertRaisesRegex(PolyplaneError, "lab/h1: run sh: the network is not started"):
            net["h1"].cmd("true")

    def test_document(self) -> None:
        net = self.net()
        h1 = net.addHost("h1", ip="10.0.0.1/24", mac="02:00:00:00:00:01", defaultRoute="via 10.0.0.254", cpu=0.5,
                         memory="64MiB")
        r1 = net.addRouter("r1", ospf={"cost": 5}, bgp=65001, rip=True, loopback="10.255.0.1", software="bird",
                           config="router id 1.2.3.4;", routes=["10.9.0.0/16 via 10.0.0.1, 10.0.0.2 metric 5",
                                                                "blackhole default"])
        net.addSwitch("s1", prefixes="10.0.0.0/24")
        net.addLink(h1, "s1", bw=10, delay="5ms", loss=1, jitter="1ms", mtu=9000)
        net.addLink("s1", r1, params2={"ip": "10.0.0.254/24"}, loss=0, bw="1.5Gbit")
        net.addLink(r1, h1, intfName1="eth9", name="second")
        net.addLink(r1, h1)
        net.expect("h1 reaches r1", "h1 does not reach s1 over ipv6")
        net.start()
        self.assertEqual(self.fake.records["lab"]["network"], {
            "name": "lab",
            "elements": [
                {"name": "h1", "kind": "host", "cpu": 500, "memory": 64 << 20, "gateways": ["10.0.0.254"],
                 "interfaces": [{"name": "s1", "addresses": ["10.0.0.1/24"], "mac": "02:00:00:00:00:01"},
                                {"name": "r1"}, {"name": "r1.2"}]},
                {"name": "r1", "kind": "router", "software": "bird", "config": {"bird.conf": "router id 1.2.3.4;"},
                 "loopback": ["10.255.0.1/32"], "routing": {"ospf": {"cost": 5}, "bgp": {"as": 65001}, "rip": {}},
                 "routes": [{"to": "10.9.0.0/16", "via": ["10.0.0.1", "10.0.0.2"], "metric": 5},
                            {"to": "0.0.0.0/0", "type": "blackhole"}],
                 "interfaces": [{"name": "s1", "addresses": ["10.0.0.254/24"]}, {"name": "eth9"}, {"name": "h1"}]},
                {"name": "s1", "kind": "switch", "prefixes": ["10.0.0.0/24"],
                 "interfaces": [{"name": "h1"}, {"name": "r1"}]},
            ],
            "links": [
                {"name": "h1--s1", "bandwidth": 10**7, "delay": 5 * 10**6, "jitter": 10**6, "loss": 0.01, "mtu": 9000,
                 "ends": [{"element": "h1", "interface": "s1"}, {"element": "s1", "interface": "h1"}]},
                {"name": "s1--r1", "loss": 0.0, "bandwidth": 1_500_000_000,
                 "ends": [{"element": "s1", "interface": "r1"}, {"element": "r1", "interface": "s1"}]},
                {"name": "second",
                 "ends": [{"element": "r1", "interface": "eth9"}, {"element": "h1", "interface": "r1"}]},
                {"name": "r1--h1",
                 "ends": [{"element": "r1", "interface": "h1"}, {"element": "h1", "interface": "r1.2"}]},
            ],
            "expect": [{"from": "h1", "to": "r1"}, {"from": "h1", "to": "s1", "not": True, "family": "ipv6"}],
            "zeros": {"links": {"s1--r1": ["loss"]}},
        })

    def test_changes_of_a_running_network(self) -> None:
        net = self.duo().start()
        net["r1"].stop()
        self.assertEqual(net["r1"].phase, "stopped")
        net["r1"].start()
        net.addLink(net.addHost("h3"), "r1")
        with self.assertRaisesRegex(UnknownElement, "lab/h3 does not run yet"):
            net["h3"].phase
        net.start()  # stopping and starting has moved the revision on, and nothing else has
        self.assertEqual(net["h3"].phase, "running")
        net.delNode("h3")
        self.assertNotIn("h3", net)
        self.assertEqual(net["r1"].intfNames(), ["h1", "h2"])
        net.start()
        self.assertEqual(len(self.fake.records["lab"]["network"]["elements"]), 3)
        net.link("h1", "r1").set(bandwidth="5Mbit")
        self.assertEqual(self.fake.set_values,
                         [{"object": "h1--r1", "values": [{"key": "bandwidth", "value": "5Mbit"}]}])
        self.fake.set_values.clear()
        net.link("h1", "r1").stop()
        net.link("h1", "r1").start()
        net.configLinkStatus("r1", "h1", "down")
        self.assertEqual([v["values"] for v in self.fake.set_values],
                         [[{"key": "state", "value": state}] for state in ("down", "up", "down")])
        with self.assertRaisesRegex(ValueError, "'broken' is neither"):
            net.configLinkStatus("r1", "h1", "broken")
        self.fake.records["lab"] = {"network": {"name": "lab", "elements": []}, "revision": 99}
        with self.assertRaisesRegex(Conflict, "was changed meanwhile"):
            net.start()

    def test_networks_that_exist(self) -> None:
        first = self.duo().start()
        with self.assertRaisesRegex(Conflict, r"there is a network lab already; Network\('lab', replace=True\)"):
            self.duo().start()
        with Network.open("lab", client=self.client) as opened:
            self.assertEqual([type(node).__name__ for node in opened.values()], ["Host", "Router", "Host"])
            self.assertEqual(opened["h2"].IP(), first["h2"].IP())
            self.assertEqual(str(opened.link("h1", "r1")), "h1:r1<->r1:h1")
        self.assertIn("lab", self.fake.records)
        second = self.net(replace=True)
        second.addHost("only")
        second.start()
        self.assertEqual(len(self.fake.records["lab"]["network"]["elements"]), 1)

    def test_what_does_not_come_up(self) -> None:
        self.fake.failed = "no disk space"
        with mock.patch.object(_network, "_FAILURE_GRACE", 0.0):
            with self.assertRaisesRegex(NotReady, "(?s)lab/h1 has failed on n1: no disk space.*lab/r1"):
                self.duo().start()
        self.fake.failed, self.fake.unready = "", 10**9
        net = self.net(name="slow")
        net.addHost("h1")
        with self.assertRaisesRegex(NotReady, "not everything runs after 0 s"):
            net.start(timeout=0)
        with self.assertRaises(NotReady), self.net(name="left") as left:
            left.addHost("h1")
            left.start(timeout=0)
        self.assertEqual(list(self.fake.records), ["lab", "slow"])

    def test_agents_that_are_starting(self) -> None:
        self.fake.late = 2
        self.duo().start()
        self.assertEqual(self.fake.requests.count("PUT /v1/networks/lab"), 3)
        self.fake.late = 10**9
        with mock.patch.object(_network, "_AGENTS", 0.0), self.assertRaisesRegex(Busy, "has not reported"):
            self.net(name="other").start()

    def test_failure_while_entering_removes(self) -> None:
        self.fake.unready = 10**9
        with mock.patch.object(Network.start, "__defaults__", (0.0,)), self.assertRaises(NotReady):
            with self.duo():
                self.fail("it began")
        self.assertEqual(self.fake.records, {})


class Pair(Topo):
    def build(self, n: int = 2) -> None:
        switch = self.addSwitch("s1")
        for i in range(1, n + 1):
            self.addLink(self.addHost(f"h{i}"), switch, bw=10)


class Topologies(Case):
    def test_topo(self) -> None:
        with self.net(Pair(n=3)) as net:
            self.assertEqual([h.name for h in net.hosts], ["h1", "h2", "h3"])
            self.assertEqual([s.name for s in net.switches], ["s1"])
            self.assertEqual([link["bandwidth"] for link in self.fake.records["lab"]["network"]["links"]], [10**7] * 3)

    def test_get(self) -> None:
        net = self.net(Pair())
        self.assertIs(net.get("h1"), net["h1"])
        h1, h2 = net.get("h1", "h2")
        self.assertEqual((str(h1), repr(h2), len(net), list(net)), ("h1", "<Host lab/h2>", 3, ["s1", "h1", "h2"]))
        with self.assertRaisesRegex(LookupError, "network lab has no element 'h9'; there are s1, h1, h2"):
            net.get("h9")
        with self.assertRaisesRegex(UnknownElement, "no link between h1 and h2"):
            net.link(h1, h2)


class Mistakes(Case):
    def test_words(self) -> None:
        net = self.duo()
        values: list[tuple[Callable[[], object], str]] = [
            (lambda: net.addHost("h1"), "network lab has an element h1 already"),
            (lambda: net.addHost("h3", ip="10.0.0.1"), "host h3: ip: '10.0.0.1' says nothing of its subnet"),
            (lambda: net.addHost("h3", memory="64MB"), "host h3: memory: '64MB' is no size"),
            (lambda: net.addHost("h3", cpu="two"), "host h3: cpu: 'two' is no number of cores"),
            (lambda: net.addHost("h3", defaultRoute="via 10.0.0.1", gateway="10.0.0.1"), "say the same"),
            (lambda: net.addRouter("r3", bgp=True), "router r3: bgp: True is not understood: the number of its AS"),
            (lambda: net.addRouter("r3", routes=["10.0.0.0/8 to h1"]), "router r3: routes: .*'to' is not understood"),
            (lambda: net.addLink("h1", "h2", bw="10MB"), "link h1--h2: bw: '10MB' is no bandwidth"),
            (lambda: net.addLink("h1", "h2", loss=101), "link h1--h2: loss: 101 is no loss; write it in percent"),
            (lambda: net.addLink("h1", "h2", delay="5"), "link h1--h2: delay: '5' is no time span"),
            (lambda: net.addLink("h1", "h2", bw=1, bandwidth="1Mbit"), "says the same as another"),
            (lambda: net.addLink("h1", "h1"), "link h1--h1: a link joins two elements"),
            (lambda: net.addLink("h1", "h2", intfName1="r1"), "h1 has an interface r1 already"),
            (lambda: net.addLink("h1", "h2", name="h1--r1"), "network lab has a link h1--r1 already"),
            (lambda: net.expect("h1 likes h2"), "'h1 likes h2' is no expectation"),
        ]
        for wrong, words in values:
            with self.subTest(words), self.assertRaisesRegex(ValueError, words):
                wrong()
        names: list[tuple[Callable[[], object], str]] = [
            (lambda: net.addHost("h3", memorry="1MiB"), "host h3: a host has no 'memorry'; did you mean memory\\?"),
            (lambda: net.addSwitch("s3", dpid="1"), "switch s3: a switch has no 'dpid'"),
            (lambda: net.addLink("h1", "h2", max_queue_size=5), "link h1--h2: a link has no 'max_queue_size'"),
            (lambda: net.addLink("h1", "h2", params1={"port": 1}), "an interface has no 'port'"),
        ]
        for wrong, words in names:
            with self.subTest(words), self.assertRaisesRegex(TypeError, words):
                wrong()
        with self.assertRaisesRegex(UnknownElement, "no element 'h9'"):
            net.addLink("h1", "h9")
        with self.assertRaisesRegex(PolyplaneError, "need no controller"):
            net.addController("c0")
        self.assertEqual(len(net.links), 2, "what was refused has left something")
        self.assertEqual(len(net), 3)
        net.addHost("h3", ip="10.0.0.1/24")
        with self.assertRaisesRegex(ValueError, "h3: ip and mac are those of its first link, and it has none"):
            net.start()
        self.assertEqual(net["h3"].IP(), "10.0.0.1")
        with self.assertRaisesRegex(PolyplaneError, "lab/h1 has no address yet"):
            net["h1"].IP()

    def test_refusals_have_the_managers_words(self) -> None:
        self.fake.problem = {"title": "Unprocessable", "status": 422, "detail": "network lab is refused", "errors": [
            {"message": "host h1: memory 1MiB is less than the 8MiB that a process needs to start",
             "problems": [{"about": "element", "index": 0, "name": "h1", "field": "memory", "message": "…"}]},
            {"message": "link x is wrong", "location": "body"}]}
        with self.assertRaises(Invalid) as caught:
            self.duo().start()
        self.assertEqual(str(caught.exception), "network lab is refused:\n  host h1: memory 1MiB is less than the 8MiB "
                         "that a process needs to start\n  body: link x is wrong")
        self.assertEqual((caught.exception.status, caught.exception.reasons[0].field), (422, "memory"))

    def test_not_running(self) -> None:
        net = Network("lab", client=Client(place=Local("nobody", self.fake.directory.name)))
        with self.assertRaisesRegex(NotRunning, "polyplane 'nobody' is not running: start it with `polyplane up "
                                                "--instance nobody`"):
            net.start()


class Commands(Case):
    def setUp(self) -> None:
        super().setUp()
        self.lab = self.duo()
        self.addCleanup(self.lab.close)
        self.lab.start()
        self.h1 = self.lab["h1"]

    def test_shell_stays(self) -> None:
        h1 = self.h1
        self.assertEqual(h1.cmd("cd /; X='a b'; pwd"), "/\n")
        self.assertEqual(h1.cmd('pwd; echo "$X"'), "/\na b\n")
        self.assertEqual(h1.run("printf no-newline; false"), ("no-newline", 1))
        self.assertEqual(h1.cmd("echo out; echo err >&2"), "out\nerr\n")
        self.assertEqual(h1.cmd("cat"), "", "a command has eaten the shell's input")
        out, status = h1.run("echo 'unterminated")
        self.assertNotEqual(status, 0)
        self.assertIn("nterminated" if "nterminated" in out else "unexpected EOF", out)
        self.assertEqual(h1.cmd("echo é; echo", self.lab["h2"]), "é\n10.0.2.1\n")
        self.assertEqual(len(h1.cmd("head -c 300000 /dev/zero | tr '\\0' x")), 300_000)

    def test_jobs(self) -> None:
        self.assertEqual(self.h1.cmd("sleep 1000 & echo begun"), "begun\n")
        self.assertIn("sleep 1000", self.h1.cmd("jobs"))
        self.assertEqual(self.h1.run("kill %1 && wait %1")[1], 143)

    def test_end_of_the_shell(self) -> None:
        self.h1.cmd("X=1")
        self.assertEqual(self.h1.run("echo bye; exit 3"), ("bye\n", 3))
        self.assertEqual(self.h1.cmd("echo x$X"), "x\n")

    def test_pexec_and_popen(self) -> None:
        self.assertEqual(self.h1.pexec("echo a; echo b >&2; exit 4"), ("a\n", "b\n", 4))
        self.assertEqual(self.h1.pexec("printf", "%s|", "a b", "c"), ("a b|c|", "", 0))
        self.assertEqual(self.h1.pexec(["sh", "-c", "echo $A"], env={"A": "1"}), ("1\n", "", 0))
        cat = self.h1.popen("cat")
        self.assertIsNone(cat.poll())
        self.assertEqual(cat.communicate("hello"), ("hello", ""))
        self.assertEqual((cat.poll(), cat.wait()), (0, 0))
        sleep = self.h1.popen("sleep", "1000")
        with self.assertRaises(TimeoutError):
            sleep.wait(0.01)
        sleep.terminate()
        self.assertEqual(sleep.poll(), -15)
        with self.assertRaisesRegex(CommandError, "lab/h1: a command is words"):
            self.h1.popen()

    def test_what_breaks(self) -> None:
        self.lab.addHost("broken")
        self.lab.addHost("refusing")
        self.lab.start()
        with self.assertRaisesRegex(Broken, "broke before the command ended"):
            self.lab["broken"].cmd("true")
        with self.assertRaisesRegex(CommandError, "it is stopped"):
            self.lab["refusing"].cmd("true")
        with self.assertRaisesRegex(CommandError, "it is stopped"):
            self.lab["refusing"].popen("true").wait()

    def test_print_and_logs(self) -> None:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            self.h1.cmdPrint("echo", "hi")
        self.assertEqual(out.getvalue(), "*** h1 : echo hi\nhi\n")
        self.assertEqual(self.lab["r1"].logs(), "it began\n")

    def test_pings(self) -> None:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            self.assertEqual(self.lab.pingAll(), 0)
            self.fake.unreached = {"h2"}
            self.assertEqual(self.lab.pingPair(), 100)
        self.assertEqual(out.getvalue(), "*** Ping: testing ping reachability\nh1 -> h2\nh2 -> h1\n"
                         "*** Results: 0% dropped (2/2 received)\n"
                         "*** Ping: testing ping reachability\nh1 -> X\nh2 -> X\n"
                         "*** Results: 100% dropped (0/2 received)\n")
        self.assertFalse(self.lab.waitConnected(0))
        self.assertFalse(self.lab.check()["ok"])
