package lab

// Words are those that polyplane's files have beside what they always had. What there is no word for is told, not
// written.
type Words struct {
	Start, Env, Image, Files bool // of hosts, and of routers
	Unaddressed              bool // links: addressing: none
}

// Reader reads a file that another one names; the path is relative to that one.
type Reader func(path string) ([]byte, error)
