package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/node/images"
	"github.com/polyplane/polyplane/software"
)

// An element that is made from an image has an overlay as its root: the image, which is mounted once on the node, below
// a directory on the element's own disk, which gets what is written. The image's files belong to the numbers that they
// have in the image; a mount of the image with the network's user namespace shows them as the network's
// (mount_setattr(2), MOUNT_ATTR_IDMAP), without any copy. Only the overlay holds that mount.

// Places on an element's disk, beside rootfs. No element sees them.
const (
	upperName = "upper" // what was written inside
	workName  = "work"  // the overlay's own
	noteName  = "image" // which image is mounted, for which network's users
)

func (d *Driver) upper(id model.ID) string { return filepath.Join(d.dirs.Files(id), upperName) }

// ownFiles is the directory with what was written inside an element.
func (d *Driver) ownFiles(job *control.Job) string {
	if job.Element.Image != "" {
		return d.upper(job.ID)
	}
	return d.rootfs(job.ID)
}

// imageID is the ID of an element's image; empty where it has none.
func imageID(el *model.NodeElement) string {
	_, id := model.SplitImage(el.Image)
	return id
}

// withImage makes an element's plan one for its image. As long as the node does not have that, waits says so.
func (d *Driver) withImage(el *model.NodeElement, plan software.Plan) (software.Plan, string, error) {
	about, waits, err := d.image(el)
	if err != nil {
		return plan, "", err
	}
	if about == nil {
		plan.NeedsProcesses = true
		return plan, waits, nil
	}
	return software.WithImage(plan, &el.Service, &about.Run), "", nil
}

// image is what an element is made from; nil with words while the node does not have it yet.
func (d *Driver) image(el *model.NodeElement) (about *images.About, waits string, err error) {
	if d.images == nil {
		err = errors.New("this node has no place for images")
	} else {
		about, waits, err = d.images.Get(imageID(el))
	}
	if err != nil {
		return nil, "", fmt.Errorf("its image %s cannot be had: %w", model.ShortImage(el.Image), err)
	}
	switch {
	case about == nil:
		waits = "waits for its image: " + waits
	case about.Tree:
		return nil, "", fmt.Errorf("its image %s has files that are put into elements (files:), and no element is "+
			"made from such", model.ShortImage(el.Image))
	}
	return about, waits, nil
}

// keepImages tells which images are used.
func (d *Driver) keepImages(jobs []control.Job) {
	if d.images == nil {
		return
	}
	used := map[string]bool{}
	for i := range jobs {
		for _, id := range jobs[i].Element.ImageIDs() {
			used[id] = true
		}
	}
	d.images.Keep(used)
}

// noteOf is what says which root an element has.
func noteOf(job *control.Job) string {
	return fmt.Sprintf("%s %d\n", imageID(&job.Element), model.UIDBase(job.Index))
}

// ensureRoot mounts the image of an element below its root, or unmounts one that it is not made from any more. What
// runs keeps what it has. The element's disk is mounted.
func (d *Driver) ensureRoot(job *control.Job) error {
	root, note := d.rootfs(job.ID), filepath.Join(d.dirs.Files(job.ID), noteName)
	if linux.IsMount(root) {
		was, err := os.ReadFile(note)
		if err == nil && job.Element.Image != "" && string(was) == noteOf(job) {
			return nil
		}
		if d.alive(containerID(job.ID)) || d.alive(shellID(job.ID)) {
			return nil
		}
		if err := d.unmountRoot(job.ID, unix.MNT_DETACH); err != nil {
			return err
		}
	}
	if job.Element.Image == "" {
		return nil
	}
	about, waits, err := d.image(&job.Element)
	if err != nil {
		return err
	}
	if about == nil {
		return errors.New(waits)
	}
	if err := d.mountImage(job, about, root); err != nil {
		return fmt.Errorf("mount its image %s: %w", model.ShortImage(job.Element.Image), err)
	}
	if err := os.WriteFile(note, []byte(noteOf(job)), 0o600); err != nil {
		return errors.Join(fmt.Errorf("note its image: %w", err), d.unmountRoot(job.ID, unix.MNT_DETACH))
	}
	return nil
}

// mountImage mounts an overlay: the image below, which all elements of it share, and the element's own files above. The
// image's files belong to the numbers in the image. A mapped mount (mount_setattr(2), MOUNT_ATTR_IDMAP) shows them as
// those of the network's users, without a copy.
func (d *Driver) mountImage(job *control.Job, about *images.About, root string) error {
	base := int(model.UIDBase(job.Index))
	upper, work := d.upper(job.ID), filepath.Join(d.dirs.Files(job.ID), workName)
	for _, dir := range []string{upper, work, root} {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	own, err := os.OpenRoot(upper)
	if err != nil {
		return err
	}
	err = d.giveFiles(own, base)
	own.Close()
	if err != nil {
		return err
	}
	users, err := unix.Open(d.dirs.UserNamespace(job.ID.Network), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the network's user namespace: %w", err)
	}
	defer unix.Close(users)
	lower, err := shifted(about.Dir, users)
	if err != nil {
		return fmt.Errorf("show its files as the network's: %w", err)
	}
	defer unix.Close(lower)
	// The overlay wants the layer's path. It takes a mount of its own for it, so this one can go at once.
	at, err := os.MkdirTemp(d.dirs.Run, "image-")
	if err != nil {
		return err
	}
	defer os.Remove(at) //nolint:errcheck // empty
	if err := unix.MoveMount(lower, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount it with the network's users: %w", err)
	}
	defer unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) //nolint:errcheck // it is there
	return mountOverlay(root, at, upper, work)
}

// shifted is a mount of a directory that shows the numbers of its files as those of a user namespace.
func shifted(dir string, users int) (int, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return -1, err
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP | unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID |
		unix.MOUNT_ATTR_NODEV, Userns_fd: uint64(users)}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// mountOverlay mounts an overlay. It is made of options one by one, since paths may have any length and any letters.
func mountOverlay(at, lower, upper, work string) error {
	fd, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for _, o := range [][2]string{{"source", "polyplane"}, {"lowerdir", lower}, {"upperdir", upper}, {"workdir", work},
		{"index", "off"}, {"metacopy", "off"}, {"redirect_dir", "off"}} {
		value := o[1]
		if o[0] != "source" && o[0] != "index" && o[0] != "metacopy" && o[0] != "redirect_dir" {
			value = strings.NewReplacer(`\`, `\\`, ":", `\:`, ",", `\,`).Replace(value)
		}
		if err := unix.FsconfigSetString(fd, o[0], value); err != nil {
			return fmt.Errorf("an overlay with %s=%s: %w", o[0], o[1], err)
		}
	}
	if err := unix.FsconfigCreate(fd); err != nil {
		return fmt.Errorf("make an overlay: %w", err)
	}
	mount, err := unix.Fsmount(fd, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return fmt.Errorf("make an overlay: %w", err)
	}
	defer unix.Close(mount)
	if err := unix.MoveMount(mount, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount an overlay at %s: %w", at, err)
	}
	return nil
}

// unmountRoot unmounts the overlay of an element that has one.
func (d *Driver) unmountRoot(id model.ID, flags int) error {
	root := d.rootfs(id)
	if _, err := os.Lstat(root); err != nil || !linux.IsMount(root) {
		return nil
	}
	if err := unix.Unmount(root, flags|unix.UMOUNT_NOFOLLOW); err != nil {
		return fmt.Errorf("unmount the root of element %s: %w", id, err)
	}
	return nil
}

// imageDirs are the directories that an element from an image has in any case.
var imageDirs = []struct {
	path string
	mode fs.FileMode
}{
	{"etc", 0o755}, {"var", 0o755}, {"var/lib", 0o755}, {"root", 0o700}, {"proc", 0o555}, {"sys", 0o555},
	{"dev", 0o755}, {"run", 0o755}, {"tmp", fs.ModeSticky | 0o777},
}

// furnishImage makes the few files that an element from an image needs. All others are the image's.
func (f *elementFiles) furnishImage(job *control.Job) error {
	for _, dir := range imageDirs {
		if err := f.dir(dir.path, dir.mode, 0, 0); err != nil {
			return err
		}
	}
	for path := range userFiles {
		if f.exists(path) && !f.regular(path) { // see furnish
			if err := f.clear(path); err != nil {
				return err
			}
		}
	}
	return f.write("etc/hostname", job.Element.Name+"\n", 0o644, 0, 0)
}

// hasSoftware returns an error where an element is to run routing software of its image that the image does not have.
// Links on the way lead where they do inside.
func (f *elementFiles) hasSoftware(el *model.NodeElement) error {
	if f.below == "" || !el.RunsRouting() {
		return nil
	}
	dir, err := os.Open(f.below)
	if err != nil {
		return fmt.Errorf("look into its image: %w", err)
	}
	defer dir.Close()
	look := func(path string) (is unix.Stat_t, err error) {
		fd, err := unix.Openat2(int(dir.Fd()), rel(path), &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
		if err == nil {
			err = unix.Fstat(fd, &is)
			unix.Close(fd)
		}
		return is, err
	}
	for _, path := range software.InImage(el.Software) {
		if _, err := look(path); err != nil {
			return fmt.Errorf("its image %s has no %s (%w): an image for a router with software: %s has %s; take "+
				"another image, or leave image out for the node's own %s", model.ShortImage(el.Image), path, err,
				el.Software, strings.Join(software.InImage(el.Software), ", "), el.Software)
		}
	}
	here, err := look("/run")
	there, lost := look("/var/run")
	if err != nil || lost != nil || here.Ino != there.Ino {
		return fmt.Errorf("in its image %s /var/run is no link to /run, so that the sockets of %s would be where "+
			"nobody looks for them: make it one, or take another image", model.ShortImage(el.Image), el.Software)
	}
	return nil
}

// imageMounts are a container's file systems, beside its root, where that is an image's.
func imageMounts(el *model.NodeElement) []specs.Mount {
	var list []specs.Mount
	for _, m := range kernelMounts() {
		if m.Destination != "/run" && m.Destination != "/tmp" { // an image may have something there
			list = append(list, m)
		}
	}
	own := []string{"/run/polyplane"}
	if at := software.MemoryInImage(el.Software); at != "" && el.RunsRouting() {
		own = append(own, at)
	}
	for _, at := range own {
		list = append(list, specs.Mount{Destination: at, Type: "tmpfs", Source: "tmpfs",
			Options: []string{"nosuid", "nodev", "mode=755", "size=1m"}})
	}
	return list
}

// imageNotOwn is notOwn for elements from images.
var imageNotOwn = func() map[string]bool {
	all := map[string]bool{}
	for _, p := range []string{"proc", "sys", "dev", "run/polyplane", "etc/hosts", "etc/hostname", "etc/polyplane",
		"var/lib/polyplane"} {
		all[p] = true
	}
	return all
}()

// environmentOf are the variables of commands that people run in an element.
func (d *Driver) environmentOf(id model.ID, el *model.NodeElement) []string {
	if el.Image == "" {
		return environment(id, el.Env)
	}
	all := imageEnvironment(id, el)
	if about, _, err := d.image(el); err == nil && about != nil {
		all = append(all, software.ImageEnvironment(&el.Service, &about.Run)...)
	}
	return all
}

// imageEnvironment are the variables that every process of an element from an image has. The image is among them, so
// that an element is made anew for another one.
func imageEnvironment(id model.ID, el *model.NodeElement) []string {
	return []string{searchPath, "HOME=/root", "POLYPLANE_NETWORK=" + id.Network, "POLYPLANE_ELEMENT=" + id.Element,
		"POLYPLANE_IMAGE=" + imageID(el)}
}
