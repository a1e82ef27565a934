package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Exit statuses, for scripts. `exec` and `console` pass on the status of the command that they ran.
const (
	ExitOK          = 0
	ExitFailed      = 1   // it was tried and failed; an expectation of `check` is unmet
	ExitUsage       = 2   // a command line or a file that makes no sense; nothing was changed
	ExitNotFound    = 3   // a network, element, interface or node that does not exist
	ExitNotRunning  = 4   // the instance is not running
	ExitRefused     = 5   // understood, but refused: no capacity, a conflict that needs --overwrite
	ExitTimeout     = 6   // --timeout or --wait passed; what was asked for goes on
	ExitInterrupted = 130 // ^C
)

// Error is an error with the exit status that it causes.
type Error struct {
	Code int
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// commandExit is the status of a command that exec ran; nothing is printed for it.
type commandExit struct{ status int }

func (e *commandExit) Error() string { return fmt.Sprintf("exit status %d", e.status) }

// usage marks errors of the command line itself, which are shown with the usage line.
type usage struct{ err error }

func (u *usage) Error() string { return u.err.Error() }

func usageError(_ *cobra.Command, format string, args ...any) error {
	return &Error{Code: ExitUsage, Err: &usage{fmt.Errorf(format, args...)}}
}

func notFound(format string, args ...any) error {
	return &Error{Code: ExitNotFound, Err: fmt.Errorf(format, args...)}
}

// badFile is a mistake in a user's file: nothing was changed.
func badFile(err error) error { return &Error{Code: ExitUsage, Err: err} }

// refused is a refusal by the instance: nothing was changed.
func refused(err error) error { return &Error{Code: ExitRefused, Err: err} }

func failed(format string, args ...any) error {
	return &Error{Code: ExitFailed, Err: fmt.Errorf(format, args...)}
}

// exitCode is the status that the process ends with after this error.
func exitCode(err error) int {
	var e *Error
	switch {
	case errors.As(err, &e):
		return e.Code
	case errors.Is(err, context.Canceled):
		return ExitInterrupted
	case errors.Is(err, context.DeadlineExceeded):
		return ExitTimeout
	}
	return ExitFailed
}

// args wraps one of cobra's argument checks so that its complaint says what is expected.
func args(low, high int, expected string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		if len(given) < low {
			return usageError(cmd, "%s is missing", expected)
		}
		if high >= 0 && len(given) > high {
			if high == 0 {
				return usageError(cmd, "unexpected argument %q", given[0])
			}
			return usageError(cmd, "unexpected argument %q after %s", given[high], expected)
		}
		return nil
	}
}

// misnamed is the error for what names nothing: a mistake of the command line, unless it may name several things.
func misnamed(cmd *cobra.Command, err error) error {
	if exitCode(err) == ExitRefused {
		return err
	}
	return usageError(cmd, "%s", err)
}

// unknown is the error for a name that does not exist among those that do.
func unknown(kind, name string, existing []string) error {
	if len(existing) == 0 {
		return notFound("there is no %s %q: there are none at all", kind, name)
	}
	return notFound("there is no %s %q%s", kind, name, existingNames(kind, name, existing))
}

// existingNames says which names there are. If some are alike, it names these first.
func existingNames(kind, name string, existing []string) string {
	if near := nearest(name, existing); len(near) > 0 {
		return fmt.Sprintf("; did you mean %s?", orList(near))
	}
	const most = 8
	slices.Sort(existing)
	more := ""
	if len(existing) > most {
		more = fmt.Sprintf(" and %d more", len(existing)-most)
		existing = existing[:most]
	}
	return fmt.Sprintf("; known %ss: %s%s", kind, strings.Join(existing, ", "), more)
}

func didYouMean(name string, existing []string) string {
	if near := nearest(name, existing); len(near) > 0 {
		return "; did you mean " + orList(near) + "?"
	}
	return ""
}

func orList(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

// nearest returns the up to three names that are most alike to name, and a typing error or two away from it.
func nearest(name string, existing []string) []string {
	type candidate struct {
		name     string
		distance int
	}
	var near []candidate
	for _, other := range existing {
		d := editDistance(strings.ToLower(name), strings.ToLower(other))
		if len(name) >= 2 && strings.HasPrefix(other, name) {
			d = 1
		}
		if d <= max(1, min(len(name), len(other))/3) {
			near = append(near, candidate{other, d})
		}
	}
	slices.SortStableFunc(near, func(a, b candidate) int {
		if a.distance != b.distance {
			return a.distance - b.distance
		}
		return strings.Compare(a.name, b.name)
	})
	var names []string
	for i, c := range near {
		if i < 3 && c.distance == near[0].distance {
			names = append(names, c.name)
		}
	}
	return names
}

// editDistance counts insertions, deletions, substitutions and swaps of neighbours (optimal string alignment).
func editDistance(a, b string) int {
	prev2, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(b)]
}
