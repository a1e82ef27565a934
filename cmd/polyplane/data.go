package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/cli"
	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/instance/lifecycle"
	"github.com/polyplane/polyplane/server/api/client"
	"github.com/polyplane/polyplane/server/store"
)

func backupCommand(app *cli.CLI) *cobra.Command {
	cmd := &cobra.Command{
		Use: "backup [FILE]", GroupID: cli.GroupData,
		Short: "Write a backup of everything that the instance keeps, while it runs",
		Long: `Write a backup: all networks with their addresses and places, quotas, tokens and members, the substrate, and the
certificate authority. Elements' own files are not in it. All of it is from one moment. The file appears only when it is complete, on
the disk, read again and verified. It holds the authority's key: keep it where only root reads it.
If the store's record of a network is damaged, the backup has all other networks, says which it lacks, and the
exit status is not 0.

Backups are also made automatically when something has changed, at most every ten minutes. The last five, and
the last one of each of the last seven days, are kept in the data directory's backups.`,
		Example: "  polyplane backup\n  polyplane backup /mnt/safe/lab.backup",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, given []string) error {
			path := fmt.Sprintf("polyplane-%s-%s.backup", app.Instance, time.Now().Format("20060102-150405"))
			if len(given) == 1 {
				path = given[0]
			}
			path, err := filepath.Abs(path)
			if err != nil {
				return err
			}
			if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
				return &cli.Error{Code: cli.ExitUsage,
					Err: fmt.Errorf("%s is no file: a backup would replace it", path)}
			}
			c := client.New(instance.NewDirs(app.Instance)).Patient(3 * time.Second)
			defer c.Close()
			err = store.WriteFile(path, func(w io.Writer) error { return c.Backup(cmd.Context(), w) })
			var down *client.NotRunningError
			switch {
			case errors.As(err, &down):
				return &cli.Error{Code: cli.ExitNotRunning, Err: err}
			case err != nil:
				return fmt.Errorf("no backup was written: %w", err)
			}
			b, err := store.ReadBackup(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(app.Out, "%s: %d networks, revision %d, verified\n", path, len(b.Networks), b.Revision)
			if len(b.Lacks) > 0 {
				return fmt.Errorf("the backup lacks what the store cannot read: %s; `%s` says what can be done",
					strings.Join(b.Lacks, ", "), instance.Command(app.Instance, "get networks -o wide"))
			}
			return nil
		},
	}
	return cmd
}

func restoreCommand(app *cli.CLI) *cobra.Command {
	empty := false
	cmd := &cobra.Command{
		Use: "restore FILE | --empty", GroupID: cli.GroupData,
		Short: "Put a backup in the place of the store",
		Long: `Put a backup in the place of the store. The file is read and verified before anything is changed. Then
the platform's processes are ended, while networks go on, and the store that was there is set aside. Of such
stores the first and the last four are kept. Afterwards start the platform with ` + "`polyplane up -d`" + `.

Nodes may have what the backup does not know: networks that were made after it. They hold it, and remove
nothing of it before you say so (` + "`polyplane get networks`" + ` shows it, and what can be done).
Tokens that were revoked after it stay revoked; those that were made after it are lost. What else it takes
back is told: removed nodes, deleted networks, owners, quotas, elements that were cut off.

With --empty the store is set aside and nothing put in its place: for ` + "`polyplane recover --from-nodes`" + `.`,
		Example: "  polyplane restore /var/lib/polyplane/default/backups/auto-20261122T120000Z.backup",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, given []string) error {
			if empty == (len(given) == 1) {
				return &cli.Error{Code: cli.ExitUsage,
					Err: errors.New("say which backup: polyplane restore FILE, or --empty for none")}
			}
			r := &lifecycle.Restore{Dirs: instance.NewDirs(app.Instance), Out: app.Out}
			r.Before = func(ctx context.Context) *store.Backup { return backupUnused(ctx, app.Instance) }
			if len(given) == 1 {
				r.File = given[0]
			}
			return withStatus(r.Run(cmd.Context()))
		},
	}
	cmd.Flags().BoolVar(&empty, "empty", false, "set the store aside, and begin with an empty one")
	return cmd
}

// examineCommand is what `up` runs to learn what is wrong with a store, and `restore` to learn what the store holds:
// reading it may end the process that does.
func examineCommand(app *cli.CLI) *cobra.Command {
	backup := ""
	cmd := &cobra.Command{
		Use: "examine-store", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if backup != "" {
				return store.BackupUnused(cmd.Context(), instance.NewDirs(app.Instance).Store(), backup)
			}
			doing := func(what string) { fmt.Fprintln(os.Stdout, "doing: "+what) }
			if err := store.Examine(cmd.Context(), instance.NewDirs(app.Instance).Store(), doing); err != nil {
				fmt.Fprintln(os.Stdout, "damaged: "+strings.ReplaceAll(err.Error(), "\n", " "))
				return &cli.Error{Code: cli.ExitRefused, Err: err}
			}
			fmt.Fprintln(os.Stdout, "sound")
			return nil
		},
	}
	cmd.Flags().StringVar(&backup, "backup", "", "write a backup to this file instead")
	return cmd
}

// backupUnused has a child read the store, and returns what it holds: nil where it cannot be read.
func backupUnused(ctx context.Context, name string) *store.Backup {
	executable, err := os.Executable()
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	dir := instance.NewDirs(name).Store()
	path := store.ExaminedBackup(dir)
	defer store.SweepExamined(dir)
	if exec.CommandContext(ctx, executable, "examine-store", "--backup", path, "--instance", name).Run() != nil {
		return nil
	}
	b, err := store.ReadBackup(path)
	if err != nil {
		return nil
	}
	return b
}

// examine has a child look into the store.
func examine(ctx context.Context, name string) error {
	executable, err := os.Executable()
	if err != nil {
		return nil //nolint:nilerr // the manager's own words must do
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var out bytes.Buffer
	c := exec.CommandContext(ctx, executable, "examine-store", "--instance", name)
	c.Stdout = &out
	err = c.Run()
	store.SweepExamined(instance.NewDirs(name).Store()) // of a child that ended in the middle
	if err == nil || ctx.Err() != nil {
		return nil
	}
	doing := ""
	for line := range strings.Lines(out.String()) {
		if what, found := strings.CutPrefix(line, "damaged: "); found {
			return errors.New(strings.TrimSpace(what))
		}
		if what, found := strings.CutPrefix(line, "doing: "); found {
			doing = strings.TrimSpace(what)
		}
	}
	if doing == "" {
		return nil
	}
	return fmt.Errorf("it is not possible to %s", doing)
}
