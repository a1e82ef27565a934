package model

import (
	"slices"
	"strings"
	"time"
)

// ImageRun is what an image has run where nothing else is said, with the names of OCI's image configuration.
type ImageRun struct {
	User       string   `json:"User,omitempty"`
	Env        []string `json:"Env,omitempty"`
	Entrypoint []string `json:"Entrypoint,omitempty"`
	Cmd        []string `json:"Cmd,omitempty"`
	WorkingDir string   `json:"WorkingDir,omitempty"`
	StopSignal string   `json:"StopSignal,omitempty"`
}

// Command is what it runs; it may be empty.
func (r *ImageRun) Command() []string { return slices.Concat(r.Entrypoint, r.Cmd) }

// MaxImageName is how long the name of an image is at most, in bytes.
const MaxImageName = 255

// SplitImage splits the name of an image as elements have it, NAME@sha256:DIGITS, into the name and the image's ID. The
// ID is empty where only a name is given, the name where only an ID is.
func SplitImage(image string) (name, id string) {
	at := strings.LastIndex(image, "@")
	if IsImageID(image[at+1:]) {
		return image[:max(0, at)], image[at+1:]
	}
	return image, ""
}

// PinImage is the name of an image together with its ID.
func PinImage(name, id string) string {
	if name == "" {
		return id
	}
	return name + "@" + id
}

// IsImageID tells whether this is an image's ID: the SHA-256 of its configuration.
func IsImageID(id string) bool {
	digits, ok := strings.CutPrefix(id, "sha256:")
	return ok && len(digits) == 64 && strings.Trim(digits, "0123456789abcdef") == ""
}

// ShortImage is an image as people read it: with the first digits of its ID.
func ShortImage(image string) string {
	name, id := SplitImage(image)
	if id == "" {
		return name
	}
	return PinImage(name, id[:len("sha256:")+12])
}

// Image is one that the manager keeps.
type Image struct {
	ID    string   `json:"id" doc:"The SHA-256 of its configuration."`
	Names []string `json:"names,omitempty" doc:"What its owner calls it."`
	Owner string   `json:"owner,omitempty"`
	// Size is how much it takes as it is kept, Unpacked how much its files have on each node.
	Size     Bytes `json:"size"`
	Unpacked Bytes `json:"unpacked"`
	Files    int   `json:"files"`
	Bytes    Bytes `json:"bytes,omitempty" doc:"How many bytes its files have together, where that is known."`
	LeftOut  int   `json:"leftOut,omitempty" doc:"How many devices, pipes and sockets in it are not unpacked."`
	// Tree tells that it is what networks put into elements (files), of which no element is made. It has no names.
	Tree  bool      `json:"tree,omitempty" doc:"It is files that are put into elements, and no element is made from it."`
	Added time.Time `json:"added"`
	// Architecture is what it was built for, in Go's words.
	Architecture string `json:"architecture,omitempty"`
	// Run is what it runs by itself.
	Run ImageRun `json:"run"`
	// UsedBy are the networks that use it.
	UsedBy []string `json:"usedBy,omitempty"`
}

// ImageList are images.
type ImageList struct {
	Images []Image `json:"images"`
}
