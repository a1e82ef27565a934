package netns

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/archive"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
)

// An element that leaves stands still with its disk, goes on if its move is taken back, and begins at its new node with
// all that was on its disk; or it does not begin.
func TestMoveOfADisk(t *testing.T) {
	n, ctx := newNode(t), context.Background()
	jobs := birdLine("lab", 63, 1)
	id := jobs[0].ID
	n.apply(t, jobs)
	n.run(t, id, "sh", "-c", "echo mine > /root/file && ln -s file /root/link && ln /root/file /root/twin && "+
		"mkdir /root/empty && chmod 750 /root/empty && mkfifo /root/pipe")
	const look = "cat /root/link && stat -c %h /root/twin && stat -c %a /root/empty && test -p /root/pipe"
	was := n.run(t, id, "sh", "-c", look)

	var disk bytes.Buffer
	if err := n.Depart(ctx, id, "m1", &disk); !errors.Is(err, control.ErrNotYet) || disk.Len() > 0 {
		t.Fatalf("the disk of an element that stays is sent: %v", err)
	}
	leaves := func(move string) {
		t.Helper()
		jobs[0].Element.Leaving, jobs[0].Element.Stopped = move, move != ""
		n.apply(t, jobs)
	}
	leaves("m1")
	if err := n.Depart(ctx, id, "m2", &disk); !errors.Is(err, control.ErrNotYet) || disk.Len() > 0 {
		t.Fatalf("the disk is sent to whoever asks: %v", err)
	}
	for range 2 {
		disk.Reset()
		if err := n.Depart(ctx, id, "m1", &disk); err != nil {
			t.Fatal(err)
		}
	}
	var files bytes.Buffer
	tree := archive.NewTree(&files)
	tree.Add(archive.File{Path: "root/new", Size: 1, Mode: 0o644}, strings.NewReader("x")) //nolint:errcheck // it is used
	tree.Close()                                                                           //nolint:errcheck
	for what, err := range map[string]error{"a new disk": n.RenewDisk(ctx, id), "files": n.Unpack(ctx, id, &files),
		"reading": n.Pack(ctx, id, &bytes.Buffer{})} {
		if err == nil || !strings.Contains(err.Error(), "it is being moved to another node") {
			t.Errorf("%s while its disk is sent: %v", what, err)
		}
	}
	leaves("") // the move is taken back
	if is := n.run(t, id, "sh", "-c", look); is != was {
		t.Fatalf("after its move was taken back it has %q, before %q", is, was)
	}

	leaves("m2")
	disk.Reset()
	if err := n.Depart(ctx, id, "m2", &disk); err != nil {
		t.Fatal(err)
	}
	if err := n.Remove(ctx, []model.ID{id}, false); err != nil {
		t.Fatal(err)
	}
	arrive := func(move string, most model.Bytes, b []byte) error {
		return n.Arrive(ctx, id.Network, "ann", model.Arrival{Element: id.Element, Move: move, Disk: most},
			bytes.NewReader(b))
	}
	most := jobs[0].Element.Limits().Disk
	if err := arrive("m2", most-1, disk.Bytes()); err == nil || !strings.Contains(err.Error(), "the element's may have") {
		t.Errorf("a disk that is too large is taken: %v", err)
	}
	others, err := n.rooms.Promise(n.dirs.Data, 1<<20, "")
	if err != nil {
		t.Fatal(err)
	}
	others.Set(1 << 60)
	if err := arrive("m2", most, disk.Bytes()); err == nil || !strings.Contains(err.Error(), "the machine's disk is too full") {
		t.Errorf("a disk takes what was promised to others: %v", err)
	}
	others.End()
	turned := bytes.Clone(disk.Bytes())
	turned[len(turned)/2] ^= 1
	for what, b := range map[string][]byte{"with a bit turned": turned, "cut short": disk.Bytes()[:disk.Len()-1]} {
		if err := arrive("m2", most, b); err == nil {
			t.Errorf("a disk %s is taken", what)
		}
	}
	jobs[0].Element.Leaving, jobs[0].Element.Stopped, jobs[0].Element.Arrived = "", false, "m2"
	refused := func(want string) {
		t.Helper()
		if r := n.Apply(ctx, jobs); r[0].Err == nil || !strings.Contains(r[0].Err.Error(), want) {
			t.Errorf("begins without its disk (want %q): %+v", want, r[0])
		}
		if _, err := os.Stat(n.dirs.Disk(id)); err == nil {
			t.Fatal("it has an empty disk")
		}
	}
	os.RemoveAll(n.arrivingDir())
	refused("is not on this node any more")
	for range 2 {
		if err := arrive("m2", most, disk.Bytes()); err != nil {
			t.Fatal(err)
		}
		n.restart(t)
	}
	refused("has not been taken up yet")
	for range 2 {
		if settled, err := n.Settle(ctx, id, "m2"); !settled || err != nil {
			t.Fatalf("not taken up: %v", err)
		}
	}
	if err := arrive("m2", most, disk.Bytes()); !errors.Is(err, errTaken) {
		t.Errorf("a disk that comes late is taken: %v", err)
	}
	n.apply(t, jobs)
	if is := n.run(t, id, "sh", "-c", look); is != was {
		t.Errorf("at its new node it has %q, before %q", is, was)
	}
	for _, moves := range []map[model.ID]string{{id: "m2"}, nil} {
		if err := n.KeepArrivals(ctx, moves); err != nil {
			t.Fatal(err)
		}
		_, err := os.Stat(filepath.Join(n.arrivingDir(), id.Network, id.Element+"@m2"))
		if kept := err == nil; kept != (moves != nil) {
			t.Errorf("told of %v, what came is kept: %v", moves, kept)
		}
	}
	jobs[0].Element.Arrived = ""
	n.apply(t, jobs)
	if is := n.run(t, id, "sh", "-c", look); is != was {
		t.Errorf("after its move it has %q, before %q", is, was)
	}

	// It comes again although it is there, since the node was away when it left: what came last counts.
	n.run(t, id, "sh", "-c", "echo other > /root/file")
	if err := arrive("m3", most, disk.Bytes()); err != nil {
		t.Fatal(err)
	}
	jobs[0].Element.Arrived = "m3"
	if settled, err := n.Settle(ctx, id, "m3"); !settled || err != nil {
		t.Fatalf("not taken up: %v", err)
	}
	n.apply(t, jobs)
	if is := n.run(t, id, "sh", "-c", look); is != was {
		t.Errorf("after its second move it has %q, and was sent %q", is, was)
	}

	// What nobody wants any more is in the trash, with its owner.
	if err := arrive("m4", most, disk.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := n.KeepArrivals(ctx, nil); err != nil {
		t.Fatal(err)
	}
	all, err := n.Trashed(ctx)
	owned := 0
	for _, i := range all {
		if i.Owner == "ann" && i.Element == id {
			owned++
		}
	}
	if err != nil || owned != 1 || len(all) != 3 {
		t.Errorf("the trash has %+v (%v)", all, err)
	}
	if err := n.EmptyTrash(ctx, []string{all[0].ID, all[1].ID, all[2].ID}); err != nil {
		t.Error(err)
	}
}

// An element that never had a disk has none at its new node either.
func TestMoveWithoutADisk(t *testing.T) {
	n, ctx := newNode(t), context.Background()
	jobs := birdLine("lab", 64, 1)
	jobs[0].Element.Software, jobs[0].Element.Routing = model.SoftwareStatic, model.Routing{}
	id := jobs[0].ID
	jobs[0].Element.Leaving, jobs[0].Element.Stopped = "m1", true
	n.apply(t, jobs)
	var disk bytes.Buffer
	if err := n.Depart(ctx, id, "m1", &disk); err != nil {
		t.Fatal(err)
	}
	if err := n.Remove(ctx, []model.ID{id}, false); err != nil {
		t.Fatal(err)
	}
	if err := n.Arrive(ctx, id.Network, "", model.Arrival{Element: id.Element, Move: "m1", Disk: 1 << 20},
		&disk); err != nil {
		t.Fatal(err)
	}
	if settled, err := n.Settle(ctx, id, "m1"); !settled || err != nil {
		t.Fatalf("not taken up: %v", err)
	}
	jobs[0].Element.Leaving, jobs[0].Element.Stopped, jobs[0].Element.Arrived = "", false, "m1"
	n.apply(t, jobs)
	if _, err := os.Stat(n.dirs.Disk(id)); err == nil {
		t.Error("it has a disk")
	}
	n.run(t, id, "true") // which makes one
}

// An element whose image is gone does not move as one that never had a disk, and keeps what is still mounted; at its new
// node it may begin with a new disk, if somebody says so.
func TestMoveOfALostDisk(t *testing.T) {
	n, ctx := newNode(t), context.Background()
	jobs := birdLine("lab", 65, 1)
	id := jobs[0].ID
	n.apply(t, jobs)
	n.run(t, id, "true")
	if err := os.Remove(n.dirs.Disk(id)); err != nil {
		t.Fatal(err)
	}
	jobs[0].Element.Leaving, jobs[0].Element.Stopped = "m1", true
	n.Apply(ctx, jobs)
	var disk bytes.Buffer
	if err := n.Depart(ctx, id, "m1", &disk); err == nil || errors.Is(err, control.ErrNotYet) || disk.Len() > 0 {
		t.Errorf("a lost disk is sent as none: %v", err)
	}
	jobs[0].Element.Leaving, jobs[0].Element.Stopped, jobs[0].Element.Arrived = "", false, "m1"
	if r := n.Apply(ctx, jobs); r[0].Err == nil {
		t.Log("it goes on with what is mounted")
	}
	if err := n.RenewDisk(ctx, id); err != nil {
		t.Fatal(err)
	}
	if settled, err := n.Settle(ctx, id, "m1"); !settled || err != nil {
		t.Errorf("the element with a new disk has not come: %v", err)
	}
	n.apply(t, jobs)
	n.run(t, id, "true")
}
