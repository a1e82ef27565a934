package netns

import (
	"archive/tar"
	"bytes"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/archive"
	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
)

// TestFilesAreCarried takes the files of a host and a router along, into elements of another network with other user
// IDs: while they run, while they are stopped. Hostile trees write nothing.
func TestFilesAreCarried(t *testing.T) {
	n := newNode(t)
	jobs := lineOf("lab", 9, 2)
	giveBIRD(&jobs[0].Element, "one")
	jobs[1].Element.Kind, jobs[1].Element.Software = model.Host, ""
	others := lineOf("two", 10, 2)
	giveBIRD(&others[0].Element, "one")
	others[1].Element.Kind, others[1].Element.Software = model.Host, ""
	jobs = append(jobs, others...)
	router, host, router2, host2 := jobs[0].ID, jobs[1].ID, jobs[2].ID, jobs[3].ID
	n.apply(t, jobs)
	pack := func(id model.ID) []byte {
		t.Helper()
		var b bytes.Buffer
		if err := n.Pack(t.Context(), id, &b); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	if b := pack(host); len(b) != 1024 {
		t.Errorf("a host without files gives %d bytes", len(b))
	}
	const files = "mkdir -p /home/a/b; echo done > /home/a/b/work; chown daemon /home/a/b/work; chmod 4750 /home/a/b/work; " +
		"ln -s work /home/a/b/link; echo 'nameserver 192.0.2.1' > /etc/resolv.conf; mkfifo /root/pipe"
	n.run(t, host, "sh", "-c", files)
	n.run(t, router, "sh", "-c", "echo more > /etc/bird/more.conf; echo '# mine' >> /etc/bird/bird.conf")
	ofHost, ofRouter := pack(host), pack(router)
	unpack := func(id model.ID, b []byte) error { return n.Unpack(t.Context(), id, bytes.NewReader(b)) }
	for id, b := range map[model.ID][]byte{host2: ofHost, router2: ofRouter} {
		if err := unpack(id, b); err != nil {
			t.Fatal(err)
		}
	}
	if linux.IsMount(n.dirs.Files(host2)) {
		t.Error("the disk of a host in which nothing runs stays mounted")
	}
	for id, want := range map[model.ID]string{
		host2: "done\nnameserver 192.0.2.1\n750 daemon root\nlink is not there\n", router2: "more\n",
	} {
		command := "cat /home/a/b/work /etc/resolv.conf; stat -c '%a %U %G' /home/a/b/work; " +
			"ls /home/a/b/link >/dev/null 2>&1 || echo link is not there"
		if id == router2 {
			command = "cat /etc/bird/more.conf; grep mine /etc/bird/bird.conf"
		}
		_, got, err := n.try(id, "sh", "-c", command)
		if err != nil || got != want {
			t.Errorf("%s has %q, %v; want %q", id, got, err, want)
		}
	}
	if again := pack(host2); !bytes.Equal(again, ofHost) {
		t.Error("what was carried is not what it was")
	}

	for i := range jobs {
		jobs[i].Element.Stopped = true
	}
	n.apply(t, jobs)
	if again := pack(router); !bytes.Equal(again, ofRouter) {
		t.Error("a stopped router gives other files than it did while it ran")
	}
	if err := unpack(router2, ofHost); err != nil {
		t.Errorf("into a stopped router: %v", err)
	}

	hostile := func(name string, kind byte) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range []tar.Header{{Typeflag: tar.TypeReg, Name: "root/first"}, {Typeflag: kind, Name: name}} {
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
		}
		w.Close()
		return b.Bytes()
	}
	for words, b := range map[string][]byte{
		"no path below":     hostile("root/../../x", tar.TypeReg),
		"no regular file":   hostile("root/x", tar.TypeSymlink),
		"not the element's": hostile("usr/bin/x", tar.TypeReg),
		"cut off":           ofHost[:len(ofHost)-1024],
	} {
		if err := unpack(host, b); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("a tree is answered with %v: want %q", err, words)
		}
	}
	if err := unpack(host, bytes.Repeat([]byte{0}, archive.MaxTree+1)); err == nil {
		t.Error("a tree that is too long is taken")
	}
	for i := range jobs {
		jobs[i].Element.Stopped = false
	}
	n.apply(t, jobs)
	if status, out, err := n.try(host, "ls", "/root/first"); err != nil || status == 0 {
		t.Errorf("a tree that was refused left a file: %s, %v", out, err)
	}
	// What the element's root puts into the way leads no further than its own root.
	n.run(t, host, "sh", "-c", "rm -r /home/a; ln -s /../../../../../../etc /home/a")
	if err := unpack(host, ofHost); err == nil {
		n.run(t, host, "test", "-f", "/etc/b/work")
	}
}
