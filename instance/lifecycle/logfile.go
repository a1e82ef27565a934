package lifecycle

import (
	"fmt"
	"os"
	"sync"
)

// logSize is the most bytes of a log's file. There are two files: the current one, and the one before it (".1").
const logSize = 8 << 20

// logFile is a log that is turned over by size. Writes come from one goroutine; it is safe for several.
type logFile struct {
	path string

	mu   sync.Mutex // held while something is written, or the file turned over
	f    *os.File   // nil while it cannot be opened, as on a full disk
	size int64
}

func openLog(path string) (*logFile, error) {
	l := &logFile{path: path}
	return l, l.open()
}

func (l *logFile) open() error {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return err
	}
	l.f, l.size = f, info.Size()
	return nil
}

// Write never fails: a full disk must not end what is logged.
func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size > 0 && l.size+int64(len(p)) > logSize {
		if os.Rename(l.path, l.path+".1") == nil {
			l.f.Close()
			if l.open() != nil {
				l.f, l.size = nil, 0
			}
		}
	}
	if l.f == nil && l.open() != nil {
		return len(p), nil
	}
	n, _ := l.f.Write(p)
	l.size += int64(n)
	return len(p), nil
}

func (l *logFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return nil
	}
	return l.f.Close()
}
