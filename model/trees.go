package model

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Names in a tree that mean something else on its way to elements.
const (
	// SuffixBeingWritten is the end of the name of a file that is being written.
	SuffixBeingWritten = ".polyplane-new"
	// PrefixRemoved begins names that say in images what is removed.
	PrefixRemoved = ".wh."
	// maxTreeName leaves room for such an end. File systems have names of 255 bytes.
	maxTreeName = 255 - 32
)

// CheckTreePath says why a file of a tree cannot have its path below the tree's. Whoever makes a tree, keeps it or puts
// it into elements asks here: a client may send what no command line makes.
func CheckTreePath(at string) error {
	if !utf8.ValidString(at) || len(at) > MaxFilePath || strings.ContainsFunc(at, unicode.IsControl) {
		return fmt.Errorf("a path has at most %d bytes of text without control characters", MaxFilePath)
	}
	for name := range strings.SplitSeq(at, "/") {
		if len(name) > maxTreeName {
			return fmt.Errorf("a name has at most %d bytes", maxTreeName)
		}
		if strings.HasSuffix(name, SuffixBeingWritten) || strings.HasPrefix(name, PrefixRemoved) {
			return fmt.Errorf("names that begin with %s or end with %s mean something else on the way to elements; "+
				"call it otherwise", PrefixRemoved, SuffixBeingWritten)
		}
	}
	return nil
}
