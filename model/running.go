package model

// MaxOwnFiles is how many files of an element a Running lists.
const MaxOwnFiles = 1000

// Running is what an element is by now, beside what its document says.
type Running struct {
	// Config is the configuration that its routing software has, by the names that the software knows its files by. The
	// software's own answer comes before what it has written.
	Config map[string]string `json:"config,omitempty"`
	// Stale says why Config is not what the software runs with, but at most what was written last. It is empty where
	// Config is what runs.
	Stale string `json:"stale,omitempty"`
	// Files are those of its own that were made or changed inside, in their order. Configuration, logs and temporary
	// files are not among them. More tells that there are more than are listed.
	Files []OwnFile `json:"files,omitempty"`
	More  bool      `json:"more,omitempty"`
}

// OwnFile is a file of an element's own.
type OwnFile struct {
	Path string `json:"path"` // inside the element
	Size Bytes  `json:"size"`
	// Link tells that it is a symbolic link.
	Link bool `json:"link,omitempty"`
}
