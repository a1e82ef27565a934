package linux

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const loopControl = "/dev/loop-control"

// ProbeLoop says why this machine cannot mount images. It returns nil if it can.
func ProbeLoop() error {
	if _, err := os.Stat(loopControl); err != nil {
		return fmt.Errorf("it has no loop devices (%s; CONFIG_BLK_DEV_LOOP, the module loop)", loopControl)
	}
	return nil
}

// LoopOf is the loop device that a file is attached to, or empty if there is none. Attaching it to a second one and
// mounting that as well would destroy the file system.
func LoopOf(image string) string {
	if path, err := filepath.EvalSymlinks(image); err == nil { // the kernel tells it that way
		image = path
	}
	const devices = "/sys/block" // Glob would look at each of them three times, and there is one for each element
	dir, err := os.Open(devices)
	if err != nil {
		return ""
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1) // those that can be read
	for _, name := range names {
		if !strings.HasPrefix(name, "loop") {
			continue
		}
		if b, err := os.ReadFile(devices + "/" + name + "/loop/backing_file"); err == nil &&
			strings.TrimSuffix(string(b), "\n") == image {
			return "/dev/" + name
		}
	}
	return ""
}

// MountImage mounts the ext4 file system in a file, by a loop device that vanishes when it is unmounted. The device
// bypasses the page cache, since the file system above has one of its own. If the file is still attached, because
// somebody holds what was mounted before, that device is mounted again.
func MountImage(image, dir string, flags uintptr, options string) error {
	if device := LoopOf(image); device != "" {
		err := unix.Mount(device, dir, "ext4", flags, options)
		if err == nil {
			return nil
		}
		if LoopOf(image) != "" { // it has not gone meanwhile
			return fmt.Errorf("mount %s: %w", device, err)
		}
	}
	return MountNewImage(image, dir, flags, options)
}

// MountNewImage does the same for a file that was just made and that nobody can have attached yet.
func MountNewImage(image, dir string, flags uintptr, options string) error {
	file, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	control, err := os.OpenFile(loopControl, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("find a loop device: %w", err)
	}
	defer control.Close()
	for {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return fmt.Errorf("find a loop device: %w", err)
		}
		path := "/dev/loop" + strconv.Itoa(n)
		device, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return fmt.Errorf("open a loop device: %w", err)
		}
		config := unix.LoopConfig{Fd: uint32(file.Fd())}
		config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR | unix.LO_FLAGS_DIRECT_IO
		copy(config.Info.File_name[:len(config.Info.File_name)-1], image)
		if err := unix.IoctlLoopConfigure(int(device.Fd()), &config); err != nil {
			device.Close()
			if errors.Is(err, unix.EBUSY) { // somebody else was faster
				continue
			}
			return fmt.Errorf("set up %s: %w", path, err)
		}
		err = unix.Mount(path, dir, "ext4", flags, options)
		device.Close()
		if err != nil {
			return fmt.Errorf("mount %s: %w", path, err)
		}
		return nil
	}
}

// MountedLoop is the path of the loop device that is mounted at a directory. It first makes the device read the size of
// its file again.
func MountedLoop(dir string) (string, error) {
	var s unix.Stat_t
	if err := unix.Stat(dir, &s); err != nil {
		return "", err
	}
	link, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(s.Dev), unix.Minor(s.Dev)))
	if err != nil {
		return "", fmt.Errorf("find the device that is mounted at %s: %w", dir, err)
	}
	path := "/dev/" + filepath.Base(link)
	device, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer device.Close()
	if err := unix.IoctlSetInt(int(device.Fd()), unix.LOOP_SET_CAPACITY, 0); err != nil {
		return "", fmt.Errorf("have %s look how large its file is: %w", path, err)
	}
	return path, nil
}

// IsMount returns whether something is mounted at path.
func IsMount(path string) bool {
	var here, parent unix.Stat_t
	return unix.Lstat(path, &here) == nil && unix.Lstat(filepath.Dir(path), &parent) == nil && here.Dev != parent.Dev
}
