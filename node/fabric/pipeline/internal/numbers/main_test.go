package main

import (
	"os"
	"strings"
	"testing"
)

func TestNumbersAreThoseOfTheHeader(t *testing.T) {
	header, err := os.ReadFile("../../c/tables.h")
	if err != nil {
		t.Fatal(err)
	}
	text, err := numbers(string(header))
	if err != nil {
		t.Fatal(err)
	}
	committed, err := os.ReadFile("../../numbers.go")
	if err != nil || string(committed) != string(text) {
		t.Errorf("numbers.go is not what c/tables.h makes (%v): run go generate in node/fabric/pipeline", err)
	}
	changed, err := numbers(strings.Replace(string(header), "PUNT_TTL = 5", "PUNT_TTL = 25", 1))
	if err != nil || !strings.Contains(string(changed), "= 25 ") {
		t.Errorf("another number is not seen: %v", err)
	}
	if _, err := numbers(strings.Replace(string(header), "PUNT_TTL = 5", "PUNT_TTL = FIVE", 1)); err == nil {
		t.Error("a name is taken for a number")
	}
	if _, err := numbers(strings.ReplaceAll(string(header), "DRIVER_", "WIRE_")); err == nil {
		t.Error("a group that is gone is not missed")
	}
}
