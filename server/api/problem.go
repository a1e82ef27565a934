package api

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/polyplane/polyplane/model"
)

// Kind is what kind of no a Problem is.
type Kind int

const (
	KindInvalid Kind = iota
	KindUnauthorized
	KindForbidden
	KindNotFound
	KindConflict
	KindTooMany // the caller has too much under way
	KindUnavailable
	KindFull // the store, or the manager's disk
	kindTooLarge
	kindNoLength
	kindNoUpgrade
	kindStrange // an agent's answer
)

// statuses are the only place where a kind becomes an HTTP status.
var statuses = [...]int{
	KindInvalid:      http.StatusUnprocessableEntity,
	KindUnauthorized: http.StatusUnauthorized,
	KindForbidden:    http.StatusForbidden,
	KindNotFound:     http.StatusNotFound,
	KindConflict:     http.StatusConflict,
	KindTooMany:      http.StatusTooManyRequests, // RFC 6585
	KindUnavailable:  http.StatusServiceUnavailable,
	KindFull:         http.StatusInsufficientStorage, // RFC 4918
	kindTooLarge:     http.StatusRequestEntityTooLarge,
	kindNoLength:     http.StatusLengthRequired,
	kindNoUpgrade:    http.StatusUpgradeRequired,
	kindStrange:      http.StatusBadGateway,
}

func (k Kind) String() string { return http.StatusText(statuses[k]) }

// Problem is a refusal: what was refused and why in words, and – where there are several – every reason. It becomes a
// problem detail (RFC 9457).
type Problem struct {
	Kind    Kind
	Detail  string
	Reasons []error
}

func (p *Problem) Error() string {
	if len(p.Reasons) == 0 {
		return p.Detail
	}
	return p.Detail + ": " + errors.Join(p.Reasons...).Error()
}

// Unwrap makes the reasons known to errors.Is and errors.As.
func (p *Problem) Unwrap() []error { return p.Reasons }

// NotFound says that an object does not exist.
func NotFound(format string, args ...any) *Problem {
	return &Problem{Kind: KindNotFound, Detail: fmt.Sprintf(format, args...)}
}

// Unauthorized says that it is not known who asks.
func Unauthorized(format string, args ...any) *Problem {
	return &Problem{Kind: KindUnauthorized, Detail: fmt.Sprintf(format, args...)}
}

// Forbidden says that whoever asks may not.
func Forbidden(format string, args ...any) *Problem {
	return &Problem{Kind: KindForbidden, Detail: fmt.Sprintf(format, args...)}
}

// Conflict says that an object's state forbids what was asked for.
func Conflict(format string, args ...any) *Problem {
	return &Problem{Kind: KindConflict, Detail: fmt.Sprintf(format, args...)}
}

// Invalid says that a request cannot be fulfilled, for all these reasons.
func Invalid(detail string, reasons ...error) *Problem {
	return &Problem{Kind: KindInvalid, Detail: detail, Reasons: reasons}
}

// Unavailable says that something needed does not answer now.
func Unavailable(err error) *Problem {
	return &Problem{Kind: KindUnavailable, Detail: err.Error()}
}

// ProblemDetail is the body of a refusal (RFC 9457).
type ProblemDetail struct {
	Title  string   `json:"title" doc:"the status in words"`
	Status int      `json:"status" doc:"the HTTP status"`
	Detail string   `json:"detail" doc:"what was refused, and why where there is one reason"`
	Errors []Reason `json:"errors,omitempty" doc:"the reasons"`
}

// Reason is one of a refusal's.
type Reason struct {
	Message  string `json:"message" doc:"what is wrong, and what would be right"`
	Location string `json:"location,omitempty" doc:"where in the request"`
	// Problems are what the reason consists of, where it is about documents.
	Problems []model.Problem `json:"problems,omitempty" doc:"what of which document is wrong"`
}

func (p *ProblemDetail) Error() string { return p.Detail }

// GetStatus is huma.StatusError's.
func (p *ProblemDetail) GetStatus() int { return p.Status }

// ContentType is huma.ContentTypeFilter's.
func (p *ProblemDetail) ContentType(string) string { return "application/problem+json" }

// newError is huma's constructor of error bodies; it keeps our words for its own refusals too.
func newError(status int, detail string, errs ...error) huma.StatusError {
	if detail == "validation failed" { // huma's own words
		detail = "the request is not understood"
	}
	m := &ProblemDetail{Status: status, Title: http.StatusText(status), Detail: detail}
	for _, err := range errs {
		if err == nil {
			continue
		}
		var d huma.ErrorDetailer
		if errors.As(err, &d) {
			e := d.ErrorDetail() // without its value: a megabyte of a wrong body is no help
			m.Errors = append(m.Errors, Reason{Message: e.Message, Location: e.Location})
		} else {
			m.Errors = append(m.Errors, Reason{Message: err.Error(), Problems: problemsOf(err)})
		}
	}
	return m
}

// problemsOf are the problems with documents that a reason is, or consists of.
func problemsOf(err error) (list []model.Problem) {
	var one model.Problem
	var several *Problem
	switch {
	case errors.As(err, &several):
		for _, reason := range several.Reasons {
			list = append(list, problemsOf(reason)...)
		}
	case errors.As(err, &one):
		list = []model.Problem{one}
	}
	return list
}

// statusError turns any error into what huma writes.
func statusError(err error) error {
	if err == nil {
		return nil
	}
	var p *Problem
	if errors.As(err, &p) {
		return newError(statuses[p.Kind], p.Detail, p.Reasons...)
	}
	slog.Error("a request failed", "error", err)
	return newError(http.StatusInternalServerError, err.Error())
}

// writeProblem answers a request that does not go through huma.
func writeProblem(w http.ResponseWriter, err error) {
	var m huma.StatusError
	if errors.As(statusError(err), &m) {
		writeDetail(w, m)
	}
}

func writeDetail(w http.ResponseWriter, m huma.StatusError) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(m.GetStatus())
	_ = huma.DefaultJSONFormat.Marshal(w, m) // the reader may have gone
}

// decodeWords says what is wrong with a JSON body without naming Go's types.
func decodeWords(err error) error {
	var mistyped *json.UnmarshalTypeError
	switch {
	case errors.As(err, &mistyped):
		where := cmp.Or(mistyped.Field, "the whole")
		return fmt.Errorf("%s: %s was expected, not %s", where, jsonName(mistyped.Type), mistyped.Value)
	case errors.Is(err, io.EOF):
		return errors.New("it is empty; JSON was expected")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the JSON ends in the middle")
	}
	return errors.New(strings.TrimPrefix(err.Error(), "json: "))
}

// jsonName is what JSON calls a type.
func jsonName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Pointer:
		return jsonName(t.Elem())
	case reflect.String:
		return "a string"
	}
	return "a number"
}
