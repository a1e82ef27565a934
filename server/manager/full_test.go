package manager

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
	"github.com/polyplane/polyplane/server/store"
)

// TestAFullStoreRefusesAndCanBeEmptied fills a store of 8 MiB and makes room again.
func TestAFullStoreRefusesAndCanBeEmptied(t *testing.T) {
	dir := t.TempDir()
	st, err := store.OpenEmbedded(t.Context(), store.EmbeddedOptions{Dir: filepath.Join(dir, "etcd"), Quota: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	m, err := New(t.Context(), instance.Dirs{Name: "test", Run: dir, Data: dir}, st, substrateOf(1))
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{Manager: m, dir: dir}
	if err := f.Register("n1", model.Registration{Socket: dir + "/none.sock"}); err != nil {
		t.Fatal(err)
	}
	noise := make([]byte, 3<<20)
	rand.Read(noise)
	text := hex.EncodeToString(noise) // packs into half its size, which is the noise's
	net := func(i int) model.Network {
		big := model.Network{Name: fmt.Sprintf("big%d", i)}
		for part := range 8 { // a file may have 1 MiB
			cut := text[part*len(text)/8 : (part+1)*len(text)/8]
			big.Elements = append(big.Elements, model.Element{Name: fmt.Sprintf("r%d", part), Kind: model.Router,
				Software: model.SoftwareFRR, Config: map[string]string{"frr.conf": "! " + cut + "\n"}})
		}
		return big
	}
	i := 0
	for ; ; i++ {
		if _, err = f.Apply(t.Context(), net(i), model.ApplyOptions{}); err != nil {
			break
		}
	}
	if p := problem(t, err); p.Kind != api.KindFull || i == 0 {
		t.Fatalf("after %d networks: %v", i, err)
	}
	if _, err := m.Network(fmt.Sprintf("big%d", i)); err == nil {
		t.Fatal("the refused network is there")
	}
	if len(f.desired(t, "n1").Networks) != i {
		t.Fatal("the node was told of a network that is not stored")
	}
	// Deleting works although the mark that says so finds no room. All of them go: etcd counts the database as it was
	// at its last commit, so that quick writes may have gone well beyond the quota.
	for k := range i {
		if err := m.Delete(t.Context(), fmt.Sprintf("big%d", k), false); err != nil {
			t.Fatal(err)
		}
	}
	f.obey(t, "n1", nil)
	m.finishDeletions(t.Context())
	if _, err := f.Apply(t.Context(), net(i), model.ApplyOptions{}); err != nil {
		t.Fatal("after making room:", err)
	}
}
