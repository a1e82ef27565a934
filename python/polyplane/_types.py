"""The objects of polyplane's API.

Generated from its OpenAPI document by tools/generate.py; `make generate` does it.
"""

from typing import Any, Required, TypedDict


class ActionRequest(TypedDict, total=False):
    action: Required[str]
    reason: str


class ActionResult(TypedDict, total=False):
    aside: str
    changed: Required[bool]
    revision: int


class Amounts(TypedDict, total=False):
    connections: int
    cpu: int
    devices: int
    disk: int
    files: int
    memory: int
    neighbours: int
    processes: int


class ApplyResult(TypedDict, total=False):
    before: "Record"
    changed: Required[bool]
    notes: list[str]
    record: Required["Record"]


class Assigned(TypedDict, total=False):
    addresses: dict[str, list[str]]
    edges: dict[str, list[str]]
    index: Required[int]
    links: dict[str, "AssignedLink"]
    loopbacks: dict[str, list[str]]
    placement: Required["Placement"]
    segments: dict[str, list[str]]
    turns: dict[str, "Turn"]


class AssignedLink(TypedDict, total=False):
    prefixes: list[str]
    vni: Required[int]


class Assignment(TypedDict, total=False):
    key: Required[str]
    value: Required[str]


BGP = TypedDict(
    "BGP",
    {
        "as": Required[int],
        "hold": int,
        "keepalive": int,
        "neighbors": list["BGPNeighbor"],
        "networks": list[str],
        "policies": dict[str, list["BGPRule"]],
        "prefixLists": dict[str, list[str]],
        "reflector": bool,
        "toward": dict[str, "BGPToward"],
        "unnumbered": bool,
    },
    total=False,
)


class BGPMatch(TypedDict, total=False):
    community: list[str]
    prefixes: str


BGPNeighbor = TypedDict(
    "BGPNeighbor",
    {
        "address": str,
        "as": Required[int],
        "client": bool,
        "in": str,
        "interface": str,
        "name": str,
        "out": str,
    },
    total=False,
)


class BGPRule(TypedDict, total=False):
    deny: bool
    match: "BGPMatch"
    set: "BGPSet"


class BGPSet(TypedDict, total=False):
    addCommunity: list[str]
    community: list[str]
    deleteCommunity: list[str]
    localPreference: int
    med: int
    prepend: int


BGPToward = TypedDict(
    "BGPToward",
    {
        "in": str,
        "out": str,
    },
    total=False,
)


class BridgeID(TypedDict, total=False):
    mac: Required[str]
    priority: Required[int]


class CalledNetwork(TypedDict, total=False):
    key: str
    name: Required[str]
    owner: str
    title: Required[str]


class CheckRequest(TypedDict, total=False):
    mesh: bool
    neighbours: int
    routers: bool
    sample: int
    seed: int
    wait: int


class CheckResult(TypedDict, total=False):
    network: Required[str]
    ok: Required[bool]
    probes: Required[list["ProbeResult"] | None]
    states: list["StateResult"]


class Discovery(TypedDict, total=False):
    interfaces: list["NodeInterface"]
    key: str
    node: Required[str]
    off: str
    processor: str
    refused: int
    settled: bool
    unknown: list[str]
    wires: list["Wire"]


class Document(TypedDict, total=False):
    base: int
    network: Required["Network"]


class Dump(TypedDict, total=False):
    elements: list["ElementView"]
    links: list["LinkStatus"]
    networks: list["NetworkStatus"]
    nodes: list["NodeStatus"]
    substrate: list["SubstrateLinkStatus"]


class DumpUpdate(TypedDict, total=False):
    dump: "Dump"


class EdgeOfInternetMirror(TypedDict, total=False):
    device: str
    end: Required["End"]
    internet: "Internet"
    mirror: "Mirror"
    name: Required[str]
    node: str
    trunk: bool
    vlan: int


class ElementOfInterface(TypedDict, total=False):
    attack: str
    config: dict[str, str]
    connections: int
    contents: dict[str, "File"]
    control: str
    cpu: int
    devices: int
    disk: int
    env: dict[str, str]
    files: int
    forwarding: str
    gateways: list[str]
    hook: str
    image: str
    interfaces: list["Interface"]
    kind: Required[str]
    location: str
    loopback: list[str]
    memory: int
    mpls: list["LSP"]
    name: Required[str]
    neighbours: int
    node: str
    prefixes: list[str]
    processes: int
    ready: "Readiness"
    restart: str
    routerID: str
    routes: list["Route"]
    routing: "Routing"
    run: str
    software: str
    start: list[str]
    stop: list[str]
    stp: str
    tmpfs: dict[str, int]
    vlans: dict[str, list[str]]
    vrfs: dict[str, "VRF"]
    vrrp: list["VRRP"]


class ElementOfResolvedInterface(TypedDict, total=False):
    attack: str
    config: dict[str, str]
    connections: int
    contents: dict[str, "File"]
    control: str
    cpu: int
    devices: int
    disk: int
    env: dict[str, str]
    files: int
    forwarding: str
    gateways: list[str]
    hook: str
    image: str
    interfaces: list["ResolvedInterface"]
    kind: Required[str]
    location: str
    loopback: list[str]
    memory: int
    mpls: list["LSP"]
    name: Required[str]
    neighbours: int
    node: str
    prefixes: list[str]
    processes: int
    ready: "Readiness"
    restart: str
    routerID: str
    routes: list["Route"]
    routing: "Routing"
    run: str
    software: str
    start: list[str]
    stop: list[str]
    stp: str
    tmpfs: dict[str, int]
    vlans: dict[str, list[str]]
    vrfs: dict[str, "VRF"]
    vrrp: list["VRRP"]


class ElementView(TypedDict, total=False):
    arrived: str
    atWork: bool
    attacks: dict[str, int]
    element: Required["ElementOfResolvedInterface"]
    fast: "FastPath"
    id: Required[str]
    incident: "Incident"
    lastTold: int
    message: str
    node: Required[str]
    owner: str
    packetTime: float
    phase: Required[str]
    quarantine: str
    restarts: int
    title: str
    usage: "Usage"


class End(TypedDict, total=False):
    element: Required[str]
    interface: Required[str]


class Event(TypedDict, total=False):
    message: Required[str]
    network: str
    node: str
    object: Required[str]
    owner: str
    reason: Required[str]
    seq: int
    severity: Required[str]
    time: Required[str]
    title: str


class EventUpdate(TypedDict, total=False):
    event: "Event"


Expectation = TypedDict(
    "Expectation",
    {
        "family": str,
        "from": Required[str],
        "interface": str,
        "not": bool,
        "prefix": str,
        "protocol": str,
        "state": str,
        "to": str,
        "via": str,
        "vrf": str,
        "what": str,
    },
    total=False,
)


class FIB(TypedDict, total=False):
    entries: list["FIBEntry"]
    matching: Required[int]
    punted: dict[str, str]
    tables: Required[list["FIBTable"] | None]


class FIBEntry(TypedDict, total=False):
    prefix: Required[str]
    ways: Required[list["FIBWay"] | None]


class FIBRequest(TypedDict, total=False):
    family: str
    limit: int
    prefix: str


class FIBTable(TypedDict, total=False):
    bytes: Required[int]
    copy: Required[int]
    family: Required[str]
    routes: Required[int]
    shape: Required[str]


class FIBWay(TypedDict, total=False):
    interface: str
    kind: Required[str]
    mac: str
    mtu: int
    share: float
    source: str


class Far(TypedDict, total=False):
    element: Required[str]
    interface: Required[str]
    kind: str
    peers: list["LinkPeer"]


class FastPath(TypedDict, total=False):
    blackholed: int
    bytes: Required[int]
    companion: int
    driver: int
    hooks: dict[str, "HookUse"]
    packets: Required[int]
    punted: dict[str, int]
    refused: int
    tables: "FastTables"


class FastTables(TypedDict, total=False):
    families: Required[list["FIBTable"] | None]
    groups: int
    inSync: Required[bool]
    lack: "TableLack"
    nextHops: Required[int]
    punted: dict[str, str]
    quota: Required["TableQuota"]
    used: Required["TableUse"]


class Fault(TypedDict, total=False):
    action: Required[str]
    at: Required[int]
    object: Required[str]
    values: list["Assignment"]


class FaultDone(TypedDict, total=False):
    at: Required[int]
    problem: str


class FaultRequest(TypedDict, total=False):
    action: Required[str]


class FaultRun(TypedDict, total=False):
    began: Required[str]
    done: list["FaultDone"]
    faults: Required[list["Fault"] | None]
    links: list["Link"]
    overrides: dict[str, "Override"]
    owner: str
    set: dict[str, list[str]]


class File(TypedDict, total=False):
    base64: str
    mode: str
    size: int
    text: str
    tree: str


class Forward(TypedDict, total=False):
    address: str
    element: Required[str]
    port: Required[int]
    protocol: str
    to: Required[int]


class FoundLink(TypedDict, total=False):
    devices: Required[list[str] | None]
    speed: int
    state: Required[str]
    switch: "HeardSwitch"


class HeardNode(TypedDict, total=False):
    node: Required[str]
    port: Required[str]


class HeardSwitch(TypedDict, total=False):
    address: str
    chassis: Required[str]
    name: str
    port: Required[str]


class Histogram(TypedDict, total=False):
    bounds: list[float]
    counts: list[int]
    sum: float


class HookUse(TypedDict, total=False):
    hook: Required[str]
    why: Required[str]


class ISIS(TypedDict, total=False):
    area: str
    hello: int
    hold: int
    level: int


class Image(TypedDict, total=False):
    added: Required[str]
    architecture: str
    bytes: int
    files: Required[int]
    id: Required[str]
    leftOut: int
    names: list[str]
    owner: str
    run: Required["ImageRun"]
    size: Required[int]
    tree: bool
    unpacked: Required[int]
    usedBy: list[str]


class ImageList(TypedDict, total=False):
    images: Required[list["Image"] | None]


class ImageRun(TypedDict, total=False):
    Cmd: list[str]
    Entrypoint: list[str]
    Env: list[str]
    StopSignal: str
    User: str
    WorkingDir: str


class Incident(TypedDict, total=False):
    at: Required[str]
    policy: Required[str]
    signal: Required[str]
    what: Required[str]


class Interface(TypedDict, total=False):
    addresses: list[str]
    mac: str
    name: Required[str]
    ospf: "OSPFPort"
    ospf6: "OSPFPort"


class Internet(TypedDict, total=False):
    forwards: list["Forward"]
    unannounced: bool


class JoinRequest(TypedDict, total=False):
    machine: Required["Machine"]
    request: Required[str]
    token: Required[str]


class JoinResult(TypedDict, total=False):
    certificate: Required[str]
    instance: Required[str]
    node: Required[str]


LSP = TypedDict(
    "LSP",
    {
        "in": int,
        "interface": str,
        "nextHop": str,
        "out": list[int],
        "to": str,
        "via": str,
    },
    total=False,
)


class Link(TypedDict, total=False):
    addressing: str
    bandwidth: int
    bfd: str
    delay: int
    ends: Required[list["End"] | None]
    jitter: int
    loss: float
    mtu: int
    name: Required[str]
    prefixes: list[str]
    state: str
    vlan: int
    vlans: str


class LinkMeasure(TypedDict, total=False):
    available: int
    capacity: int
    device: str
    lost: Required[int]
    problem: str
    rtt: Required["Histogram"]
    rttMedian: int
    rttMin: int
    sent: Required[int]
    to: Required[str]
    up: Required[bool]
    used: Required[int]


class LinkPath(TypedDict, total=False):
    bandwidth: int
    nodes: Required[list[str] | None]


class LinkPeer(TypedDict, total=False):
    addresses: Required[list[str] | None]
    mac: Required[str]


class LinkRoom(TypedDict, total=False):
    a: Required[str]
    b: Required[str]
    bandwidth: Required[int]
    left: Required[int]
    now: Required[int]


class LinkStatus(TypedDict, total=False):
    lastTold: int
    link: Required["Link"]
    network: Required[str]
    owner: str
    paths: list["LinkPath"]
    ports: list["PortStatus"]
    relays: list["RelayStatus"]
    title: str
    turn: "Turn"
    up: Required[bool]
    vni: Required[int]


class Machine(TypedDict, total=False):
    address: Required[str]
    bandwidth: int
    cpu: Required[int]
    location: str
    memory: Required[int]
    mtu: Required[int]
    name: Required[str]


class Mirror(TypedDict, total=False):
    bandwidth: int
    link: Required[str]


class MovePromise(TypedDict, total=False):
    interrupts: list[str]
    keeps: list[str]
    loses: list[str]


class MoveRequest(TypedDict, total=False):
    cold: bool
    dryRun: bool
    to: Required[str]


MoveResult = TypedDict(
    "MoveResult",
    {
        "disk": Required[int],
        "from": Required[str],
        "id": Required[str],
        "links": list["MovedLink"],
        "most": Required[int],
        "move": str,
        "notes": list[str],
        "promise": Required["MovePromise"],
        "stands": Required[int],
        "to": Required[str],
    },
    total=False,
)


MoveStatus = TypedDict(
    "MoveStatus",
    {
        "began": Required[str],
        "element": Required[str],
        "ended": str,
        "from": Required[str],
        "id": Required[str],
        "message": str,
        "move": Required[str],
        "owner": str,
        "placement": "Placement",
        "sent": int,
        "stands": int,
        "step": Required[str],
        "title": str,
        "to": Required[str],
    },
    total=False,
)


class MovedLink(TypedDict, total=False):
    after: list["LinkPath"]
    before: list["LinkPath"]
    link: Required[str]


Moving = TypedDict(
    "Moving",
    {
        "began": Required[str],
        "element": Required[str],
        "from": Required[str],
        "move": Required[str],
        "placement": "Placement",
        "step": Required[str],
        "to": Required[str],
    },
    total=False,
)


class NameList(TypedDict, total=False):
    networks: Required[list["CalledNetwork"] | None]
    only: bool
    user: str


class Network(TypedDict, total=False):
    attack: str
    edges: list["EdgeOfInternetMirror"]
    elements: list["ElementOfInterface"]
    expect: list["Expectation"]
    faults: list["Fault"]
    links: list["Link"]
    name: Required[str]
    owner: str
    placement: "Placing"
    pools: list[str]
    slice: "Slice"
    title: str
    zeros: "Settings"


class NetworkStatus(TypedDict, total=False):
    created: Required[str]
    damaged: bool
    deleting: bool
    elements: Required[int]
    failed: int
    key: str
    links: Required[int]
    message: str
    modified: Required[str]
    name: Required[str]
    nodes: list[str]
    owner: str
    phase: Required[str]
    provisional: str
    revision: Required[int]
    running: Required[int]
    stopped: int
    suspended: int
    title: str
    unknown: int


class NodeInterface(TypedDict, total=False):
    kind: str
    mac: str
    master: str
    mtu: Required[int]
    name: Required[str]
    speed: int
    up: Required[bool]


class NodeRoom(TypedDict, total=False):
    cpu: Required[int]
    cpuLeft: Required[int]
    cpuNow: Required[int]
    memory: Required[int]
    memoryLeft: Required[int]
    memoryNow: Required[int]
    name: Required[str]


class NodeStatus(TypedDict, total=False):
    address: str
    condition: Required[str]
    cpu: Required[int]
    cpuReserved: Required[int]
    cpuUsed: Required[float]
    disk: int
    diskFree: int
    elements: Required[int]
    found: "Discovery"
    held: list[str]
    hook: str
    joined: bool
    lastSeen: str
    location: str
    memory: Required[int]
    memoryReserved: Required[int]
    memoryUsed: Required[int]
    mtu: int
    name: Required[str]
    offers: list["Offer"]
    phases: dict[str, int]
    ports: Required[int]
    problem: str
    ready: Required[bool]
    revision: Required[int]
    simulated: bool
    underlay: dict[str, "HookUse"]


class NodeToCome(TypedDict, total=False):
    bandwidth: int
    cpu: int
    like: str
    location: str
    memory: int
    name: Required[str]


class NumberedPath(TypedDict, total=False):
    bandwidth: int
    nodes: Required[list[str] | None]
    vni: Required[int]


class OSPF(TypedDict, total=False):
    area: str
    cost: int
    dead: int
    hello: int
    redistribute: list[str]


class OSPFPort(TypedDict, total=False):
    area: str
    cost: int
    dead: int
    hello: int
    network: str
    off: bool
    passive: str


class Offer(TypedDict, total=False):
    driver: Required[str]
    kinds: list[str]
    lacks: dict[str, str]
    makes: list[str]


class Override(TypedDict, total=False):
    decided: int
    held: bool
    overwrites: int
    quarantined: bool
    reason: str
    restarts: int
    stopped: bool
    suspended: bool


class OwnFile(TypedDict, total=False):
    link: bool
    path: Required[str]
    size: Required[int]


class Placement(TypedDict, total=False):
    elements: dict[str, str]
    links: dict[str, list["LinkPath"]]


class Placing(TypedDict, total=False):
    distinct: bool
    policy: str
    spread: str


class PolicyRequest(TypedDict, total=False):
    attack: Required[str]
    element: str


class PolicyView(TypedDict, total=False):
    administrator: bool
    attack: Required[str]
    id: Required[str]
    owner: str
    quarantined: bool
    reason: str
    title: str


class Pong(TypedDict, total=False):
    instance: Required[str]
    networks: Required[int]
    nodes: Required[int]
    ready: Required[int]
    revision: Required[int]
    started: Required[str]
    store: Required[str]
    waits: str


class PortStatus(TypedDict, total=False):
    copied: int
    device: Required[str]
    dropped: Required[int]
    drops: dict[str, int]
    id: Required[str]
    index: Required[int]
    rxBytes: Required[int]
    rxPackets: Required[int]
    txBytes: Required[int]
    txPackets: Required[int]
    uncopied: int
    up: Required[bool]


ProbeResult = TypedDict(
    "ProbeResult",
    {
        "address": Required[str],
        "answered": str,
        "from": Required[str],
        "message": str,
        "not": bool,
        "ok": Required[bool],
        "reached": Required[bool],
        "rtt": int,
        "to": Required[str],
    },
    total=False,
)


class Problem(TypedDict, total=False):
    about: Required[str]
    field: str
    index: Required[int]
    message: Required[str]
    name: Required[str]
    network: str


class ProblemDetail(TypedDict, total=False):
    detail: Required[str]
    errors: list["Reason"]
    status: Required[int]
    title: Required[str]


class Quota(TypedDict, total=False):
    cpu: int
    disk: int
    elements: int
    images: int
    memory: int
    networks: int
    requests: int
    stored: int
    streams: int


class QuotaRequest(TypedDict, total=False):
    values: Required[list["Assignment"] | None]


class QuotaStatus(TypedDict, total=False):
    kind: Required[str]
    limit: Required["Quota"]
    name: Required[str]
    used: Required["Quota"]


class RIP(TypedDict, total=False):
    garbage: int
    redistribute: list[str]
    timeout: int
    update: int


class Readiness(TypedDict, total=False):
    command: str
    tcp: int


class Reason(TypedDict, total=False):
    location: str
    message: Required[str]
    problems: list["Problem"]


class Record(TypedDict, total=False):
    assigned: Required["Assigned"]
    created: Required[str]
    deleting: bool
    discard: bool
    faultRun: "FaultRun"
    modified: Required[str]
    moving: "Moving"
    network: Required["Network"]
    overrides: dict[str, "Override"]
    owner: str
    policies: dict[str, str]
    provisional: str
    revision: Required[int]
    set: "Settings"


class RecoverRequest(TypedDict, total=False):
    changed: bool
    dryRun: bool
    networks: list[str]


class RecoverResult(TypedDict, total=False):
    networks: list["RecoveredNetwork"]
    silent: list[str]


class RecoveredNetwork(TypedDict, total=False):
    elements: Required[int]
    links: Required[int]
    name: Required[str]
    nodes: list[str]
    notes: list[str]
    problem: str
    taken: Required[bool]


class RelayStatus(TypedDict, total=False):
    bytes: Required[list[int] | None]
    foreign: int
    link: Required[str]
    lost: int
    network: Required[str]
    node: Required[str]
    over: Required[list[int] | None]
    packets: Required[list[int] | None]
    vni: Required[int]


class ResolvedInterface(TypedDict, total=False):
    addresses: list[str]
    bfd: str
    device: str
    edge: str
    far: "Far"
    internet: bool
    link: str
    mac: str
    mtu: int
    name: Required[str]
    on: str
    ospf: "OSPFPort"
    ospf6: "OSPFPort"
    shape: "Shape"
    tagged: str
    unannounced: bool
    untagged: int
    vlan: int
    vrf: str
    vrrp: list["VirtualRouter"]


class Route(TypedDict, total=False):
    interface: str
    metric: int
    to: Required[str]
    type: str
    via: list[str]


class Routing(TypedDict, total=False):
    bgp: "BGP"
    isis: "ISIS"
    ospf: "OSPF"
    ospf6: "OSPF"
    rip: "RIP"


class Running(TypedDict, total=False):
    config: dict[str, str]
    files: list["OwnFile"]
    more: bool
    stale: str


class SetRequest(TypedDict, total=False):
    loseFiles: bool
    object: str
    values: Required[list["Assignment"] | None]


class SetResult(TypedDict, total=False):
    before: Required["Record"]
    changed: Required[bool]
    nodes: dict[str, int]
    record: Required["Record"]


class Settings(TypedDict, total=False):
    elements: dict[str, list[str]]
    links: dict[str, list[str]]
    network: list[str]


class Shape(TypedDict, total=False):
    bandwidth: int
    delay: int
    jitter: int
    loss: float


class Slice(TypedDict, total=False):
    bandwidth: int
    cpu: int
    memory: int
    mode: str
    nexthops: int
    packets: int
    punts: int
    tables: int


class StateResult(TypedDict, total=False):
    expected: Required[str]
    message: str
    ok: Required[bool]


class Substrate(TypedDict, total=False):
    hook: str
    links: list["SubstrateLink"]
    nodes: Required[list["SubstrateNode"] | None]


class SubstrateLink(TypedDict, total=False):
    a: Required[str]
    b: Required[str]
    bandwidth: int
    delay: int


class SubstrateLinkStatus(TypedDict, total=False):
    a: Required[str]
    b: Required[str]
    back: "LinkMeasure"
    bandwidth: int
    delay: int
    forth: "LinkMeasure"
    found: "FoundLink"
    reserved: int
    unstated: bool


class SubstrateNode(TypedDict, total=False):
    address: str
    cpu: Required[int]
    hook: str
    joined: bool
    location: str
    memory: Required[int]
    mtu: int
    name: Required[str]
    simulated: bool


class TableLack(TypedDict, total=False):
    limit: Required[int]
    node: bool
    quota: Required[str]


class TableQuota(TypedDict, total=False):
    nexthops: Required[int]
    punts: Required[int]
    routes: Required[int]
    strict: bool
    tables: Required[int]


class TableUse(TypedDict, total=False):
    nexthops: Required[int]
    routes: Required[int]
    tables: Required[int]


class Token(TypedDict, total=False):
    created: Required[str]
    expires: str
    id: Required[str]
    node: str
    revoked: str
    role: str
    used: str
    usedBy: str
    user: str


class TokenRequest(TypedDict, total=False):
    node: str
    role: str
    ttl: int
    user: str


class TokenResult(TypedDict, total=False):
    created: Required[str]
    expires: str
    id: Required[str]
    node: str
    revoked: str
    role: str
    servers: Required[list[str] | None]
    text: Required[str]
    used: str
    usedBy: str
    user: str


class Trace(TypedDict, total=False):
    by: str
    kernel: str
    prefix: str
    reason: str
    verdict: Required[str]
    way: "FIBWay"
    ways: int


TraceRequest = TypedDict(
    "TraceRequest",
    {
        "bytes": int,
        "destination": Required[str],
        "in": str,
        "port": int,
        "protocol": int,
        "source": str,
        "sourcePort": int,
        "ttl": int,
    },
    total=False,
)


class TrashItem(TypedDict, total=False):
    element: Required[str]
    id: Required[str]
    moved: bool
    node: Required[str]
    owner: str
    size: Required[int]
    time: Required[str]
    title: str


class TrashList(TypedDict, total=False):
    items: list["TrashItem"]
    silent: list[str]


class TrashRequest(TypedDict, total=False):
    anyOwner: bool
    items: Required[list[str] | None]


class Tree(TypedDict, total=False):
    bridge: Required["BridgeID"]
    cost: Required[int]
    ports: Required[list["TreePort"] | None]
    root: Required["BridgeID"]


class TreePort(TypedDict, total=False):
    cost: Required[int]
    interface: Required[str]
    role: Required[str]
    state: Required[str]


class Turn(TypedDict, total=False):
    before: Required[list["NumberedPath"] | None]
    turned: bool


class Usage(TypedDict, total=False):
    cpu: Required[float]
    disk: Required[int]
    limits: Required["Amounts"]
    memory: Required[int]
    processes: Required[int]


class VRF(TypedDict, total=False):
    gateways: list[str]
    interfaces: list[str]
    ospf: "OSPF"
    ospf6: "OSPF"
    routerID: str
    routes: list["Route"]


class VRRP(TypedDict, total=False):
    address: str
    id: int
    interval: int
    preempt: str
    priority: dict[str, int]


class VirtualRouter(TypedDict, total=False):
    address: Required[str]
    device: Required[str]
    id: Required[int]
    interval: Required[int]
    preempt: bool
    priority: Required[int]


class WhatIf(TypedDict, total=False):
    add: list["NodeToCome"]
    down: list[str]


class WhatIfResult(TypedDict, total=False):
    added: list["SubstrateNode"]
    links: list["LinkRoom"]
    moves: list["WouldBe"]
    networks: list["WouldBe"]
    nodes: Required[list["NodeRoom"] | None]
    notes: list[str]
    others: "WouldBeOthers"
    spent: bool


class Whoami(TypedDict, total=False):
    instance: Required[str]
    role: Required[str]
    user: str


class Wire(TypedDict, total=False):
    device: Required[str]
    nodes: list["HeardNode"]
    problem: str
    speed: int
    switches: list["HeardSwitch"]
    up: Required[bool]


class WouldBe(TypedDict, total=False):
    elements: list["WouldMove"]
    links: list["WouldRoute"]
    lost: list["WouldLose"]
    network: Required[str]
    refused: list[str]
    unknown: bool


class WouldBeOthers(TypedDict, total=False):
    elements: int
    links: int
    lost: int
    networks: int
    refused: int
    unknown: int


class WouldLose(TypedDict, total=False):
    element: Required[str]
    why: Required[str]


WouldMove = TypedDict(
    "WouldMove",
    {
        "element": Required[str],
        "from": str,
        "to": Required[str],
    },
    total=False,
)


class WouldRoute(TypedDict, total=False):
    link: Required[str]
    nodes: list[str]
