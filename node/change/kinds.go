package change

// The kinds of what is done to an element.
var (
	ElementCreated   = Kind{"ElementCreated", "created"}
	ElementStarted   = Kind{"ElementStarted", "started"}
	ElementStopped   = Kind{"ElementStopped", "stopped"}
	DetachedEnded    = Kind{"ElementStopped", "ended what was detached in it"}
	ElementSuspended = Kind{"ElementSuspended", "suspended"}
	ElementResumed   = Kind{"ElementResumed", "resumed"}
	ElementRestarted = Kind{"ElementRestarted", "restarted: {object}"}
	CommandFailed    = Kind{"CommandFailed", "{object}"} // one that its owner has run before its end
	LimitsChanged    = Kind{"LimitsChanged", "limits changed"}
	PortRestored     = Kind{"PortRestored", "port {object} restored"}
	PortRemoved      = Kind{"PortRemoved", "port {object} removed"}

	PortAdded         = Kind{"ElementChanged", "port {object} added"}
	PortMended        = Kind{"ElementChanged", "port {object} put right"}
	UsersMounted      = Kind{"ElementChanged", "user namespace of network {object} mounted again"}
	NamespaceMounted  = Kind{"ElementChanged", "namespace mounted again"}
	SysctlSet         = Kind{"ElementChanged", "sysctl net.{object} set to {detail}"}
	DeviceUp          = Kind{"ElementChanged", "device {object} taken up"}
	DeviceDown        = Kind{"ElementChanged", "device {object} taken down"}
	DeviceMade        = Kind{"ElementChanged", "device {object} made"}
	DeviceRenamed     = Kind{"ElementChanged", "device {object} renamed from {detail}"}
	VLANMade          = Kind{"ElementChanged", "interface {object} made for the VLAN {detail}"}
	VRFMade           = Kind{"ElementChanged", "VRF {object} made"}
	VRFEntered        = Kind{"ElementChanged", "interface {object} put into the VRF {detail}"}
	VRFLeft           = Kind{"ElementChanged", "interface {object} taken out of its VRF"}
	DeviceRemoved     = Kind{"ElementChanged", "device {object} removed"}
	DevicesRemoved    = Kind{"ElementChanged", "{detail} devices that were made in it removed: {object} and others"}
	DevicesStay       = Kind{"ElementChanged", "devices that were made in it are not all removed: {object}"}
	MACSet            = Kind{"ElementChanged", "MAC address of {object} set"}
	MTUSet            = Kind{"ElementChanged", "MTU of {object} set"}
	SegmentsSet       = Kind{"ElementChanged", "segmentation of {object} set"}
	AddressAdded      = Kind{"ElementChanged", "address {detail} added to {object}"}
	AddressAddedAgain = Kind{"ElementChanged", "address {detail} added to {object} again"}
	AddressRemoved    = Kind{"ElementChanged", "address {detail} removed from {object}"}
	LinkLocalAdded    = Kind{"ElementChanged", "link-local address added to {object}"}
	RouteAdded        = Kind{"ElementChanged", "route to {object} added"}
	RouteRemoved      = Kind{"ElementChanged", "route to {object} removed"}
	ConnectedAdded    = Kind{"ElementChanged", "{detail} out of {object} added"}
	NeighboursEntered = Kind{"ElementChanged", "neighbours of {object} entered"}
	NeighbourRemoved  = Kind{"ElementChanged", "neighbour {object} removed"}
	FileRestored      = Kind{"ElementChanged", "{object} was damaged, and is the network's again"}
	FileMoved         = Kind{"ElementChanged", "{object}, which was {detail}, is now {more}: it was in the way"}
	ConfigLoaded      = Kind{"ElementChanged", "configuration loaded"}
	ServiceChanged    = Kind{"ElementChanged", "what is run in it changed"}
	ServiceAgain      = Kind{"ElementChanged", "its service is started again, since files of it were overwritten"}
	FilesLater        = Kind{"ElementChanged", "its limit of open files counts from its next start: {object}"}
	DiskLater         = Kind{"ElementChanged", "its disk grows at its next start: {object}"}
)

// The kinds of what is done to a node's fabric.
var (
	PinRestored       = Kind{"FabricChanged", "pin of {object} restored"}
	PortsJoined       = Kind{"FabricChanged", "{object} ports joined to the fabric"}
	PortsLeft         = Kind{"FabricChanged", "{object} ports left the fabric"}
	EntryRestored     = Kind{"FabricChanged", "port {object}: its entry in the devices' table restored"}
	TunnelRestored    = Kind{"FabricChanged", "port {object}: VNI {detail} restored in the tunnels' table"}
	EdgeRestored      = Kind{"FabricChanged", "port {object}: its edge restored in the edges' table"}
	LinkRestored      = Kind{"FabricChanged", "port {object}: where its link ends was altered and is restored"}
	LinkMoved         = Kind{"FabricChanged", "port {object}: its link now ends {detail}"}
	ClsactRestored    = Kind{"FabricChanged", "port {object}: its clsact restored"}
	CarrierSet        = Kind{"FabricChanged", "port {object}: its device was set up or down and is put right"}
	QueueSet          = Kind{"FabricChanged", "port {object}: its queue set to {detail}"}
	CopyBegun         = Kind{"FabricChanged", "port {object}: what passes its link is copied"}
	CopyEnded         = Kind{"FabricChanged", "port {object}: what passes its link is copied no longer"}
	SteeringRestored  = Kind{"FabricChanged", "element {object}: its steering restored"}
	CompanionRestored = Kind{"FabricChanged", "port {object}: its companion restored"}
	CompanionsJoined  = Kind{"FabricChanged", "{object} companions' devices joined to the fabric again"}
	FilterSet         = Kind{"FabricChanged", "the {object} filter restored or replaced"}
	EdgeAttached      = Kind{"FabricChanged", "edge {object} attached"}
	TunnelDeviceMade  = Kind{"FabricChanged", "the tunnel device {object} restored"}
	TunnelDeviceUp    = Kind{"FabricChanged", "the tunnel device {object} set up again"}
	RelaysMade        = Kind{"FabricChanged", "{object} links are relayed here"}
	RelayChanged      = Kind{"FabricChanged", "link {object}: relayed between other nodes, or at another bandwidth"}
	RelayRestored     = Kind{"FabricChanged", "link {object}: its relay restored"}
	RelaysRemoved     = Kind{"FabricChanged", "{object} links are no longer relayed"}
	UnderlayFilterSet = Kind{"FabricChanged", "the filter of the underlay's device {object} set"}
	TunnelFilterSet   = Kind{"FabricChanged", "the filter of the tunnel device {object} restored or replaced"}
	HookUsed          = Kind{"FabricChanged", "{object}: its driver's hook is used"}
	HookLeft          = Kind{"FabricChanged", "{object}: its driver's hook is no longer used"}
	HookRefused       = Kind{"FabricChanged", "{object}: its driver's hook is asked for and not used: {detail}"}
	PacketsLimited    = Kind{"FabricChanged", "network {object}: it may send {detail} packets a second"}
	PuntsLimited      = Kind{"FabricChanged",
		"network {object}: its routers may get {detail} exceptional packets a second"}
	SliceShaped = Kind{"FabricChanged", "network {object}: what it sends off the node set to {detail}"}
)

// The kinds of what is done to an internet edge, or to all of a node's.
var (
	GatewayMade      = Kind{"EdgeChanged", "internet edge: made"}
	GatewayRules     = Kind{"EdgeChanged", "internet edge: rules restored"}
	GatewayInner     = Kind{"EdgeChanged", "internet edge: its gateway's device towards the network restored"}
	GatewayOuter     = Kind{"EdgeChanged", "internet edge: its gateway's device towards the uplink restored"}
	GatewayAddresses = Kind{"EdgeChanged", "internet edge: addresses of its gateway restored"}
	GatewayRoutes    = Kind{"EdgeChanged", "internet edge: routes of its gateway restored"}
	UplinkChanged    = Kind{"EdgeChanged", "internet edge: the way to the machine's uplink restored or changed"}
)
