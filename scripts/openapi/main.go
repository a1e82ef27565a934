// Openapi prints the OpenAPI document of the manager's API, as it serves it. From it the Python package's types are
// made.
package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/polyplane/polyplane/server/api"
)

func main() {
	answer := httptest.NewRecorder()
	// The document is for everybody who comes over TLS, so that nothing of an instance is needed.
	request := httptest.NewRequest(http.MethodGet, "https://polyplane/openapi.json", nil)
	api.New(api.Services{}).ServeHTTP(answer, request)
	if answer.Code != http.StatusOK {
		fmt.Fprintf(os.Stderr, "openapi: the API answers with %d: %s\n", answer.Code, answer.Body)
		os.Exit(1)
	}
	if _, err := os.Stdout.Write(answer.Body.Bytes()); err != nil {
		fmt.Fprintln(os.Stderr, "openapi:", err)
		os.Exit(1)
	}
}
