package main

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

func TestGeneratedFilesAreCurrent(t *testing.T) {
	files, err := generate("..")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join("../../..", name))
		if err != nil {
			t.Error(err)
		} else if !bytes.Equal(got, want) {
			t.Errorf("%s is not current; run go generate ./spec", name)
		}
	}
}

func TestEveryKeyIsExplained(t *testing.T) {
	c, err := readComments("../form")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sections {
		keys := c.keys(s.typ)
		if len(keys) == 0 {
			t.Errorf("%s has no keys", s.typ)
		}
		for _, k := range keys {
			if k.comment == "" {
				t.Errorf("%s: the key %s has no comment", s.typ, k.name)
			}
		}
	}
	if k := c.keys(reflect.TypeOf(struct{}{})); k != nil {
		t.Errorf("an empty struct has the keys %v", k)
	}
}
