package form

import "github.com/polyplane/polyplane/model"

// Service is what is run in a router or a host beside its routing software.
type Service struct {
	// What its files begin as: an image's name, like `lab/web:1`, as `polyplane image list` shows it; one of a
	// registry, like `nginx:1.27`, which `apply` pulls where it is not there; or the path of an archive or a layout,
	// which begins with `./`, `../` or `/`. The image's command is run unless there is `run`. For hosts, and for
	// routers, which then run the image's FRR or BIRD. Without an image an element sees the machine's programs.
	Image string `yaml:"image"`
	// Commands that are run when it starts, one after the other, each by `sh -c`, once its interfaces and addresses are
	// there (in routers with routing software: once that has its configuration). Where one fails, the element has
	// failed, and those after it are not run. Commands that an `apply` adds are run at once; those that it takes out
	// are not undone.
	Start Commands `yaml:"start"`
	// Commands that are run before it ends: by `stop`, `restart` and `delete`, or when it moves. They and the service
	// have ten seconds for that.
	Stop Commands `yaml:"stop"`
	// A command that lives as long as the element, like `iperf3 -s`: a program of the machine, or one in the element's
	// own files, that stays in the foreground. What it prints is in `polyplane logs`.
	Run *string `yaml:"run"`
	// What is done when `run` ends by itself: always (it is run again: the default), on-failure (if its status is not
	// 0), or no. It is run again at once, then after 1 s, 2 s, 4 s and so on up to 32 s.
	Restart model.RestartPolicy `yaml:"restart"`
	// Variables of its commands' environment, by name, and of commands that `exec` runs.
	Env Variables `yaml:"env"`
	// What must be so before the element is running; until then it is starting.
	Ready *Ready `yaml:"ready"`
	// File systems in memory, by the path where they are, with their sizes: `{/data: 64MiB}`. What is in them counts as
	// memory of the element, and is gone when its processes end.
	Tmpfs Sizes `yaml:"tmpfs"`
	// Files that are put into it before anything is run in it, by the path inside: the path of a file or a directory,
	// relative to this file (`{/etc/nginx: ./nginx}`), or a mapping (`{/etc/motd: {text: welcome}}`).
	Files Files `yaml:"files"`
}

// File is what is put into an element at a path. It has one of file, text and base64.
type File struct {
	// Where the file, or the directory, is that is put there, relative to this file.
	File string `yaml:"file"`
	// The content itself.
	Text *string `yaml:"text"`
	// The content itself, in base64, where it is no text.
	Base64 *string `yaml:"base64"`
	// What `save` writes in place of a file or directory of more than 4 MiB, or of more than 512 files: the ID under
	// which the manager has it. Whoever writes a file names it by its path.
	Tree string `yaml:"tree"`
	// The size of the tree, which stands beside its ID.
	Size string `yaml:"size"`
	// Its permissions, like 0755. When left out, those of the file that is read, and 0644 of content that is written
	// here. It belongs to root.
	Mode string `yaml:"mode"`
}

// Ready is the sign that what is run is ready. With both, both must be so.
type Ready struct {
	// A TCP port that something in the element listens on, 1 to 65535.
	TCP int `yaml:"tcp"`
	// A command, run by `sh -c` again and again until its status is 0.
	Command string `yaml:"command"`
}

// HostDefaults are what hosts have unless they say otherwise. Variables, files, and file systems in memory are taken
// one by one.
type HostDefaults struct {
	Common  `yaml:",inline"`
	Service `yaml:",inline"`
}

// Commands is one command, or a list of them.
type Commands []string

// Variables are values by name.
type Variables map[string]string

// Files are files by path.
type Files []Item[File]

// Sizes are sizes by path.
type Sizes map[string]model.Bytes
