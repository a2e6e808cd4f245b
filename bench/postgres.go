package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// A postgresServer is a PostgreSQL of this program's own on loopback TCP, with
// the settings that initdb gives it: fsync and synchronous_commit are on, so it
// keeps what it has confirmed, as the Redis beside it does not.
type postgresServer struct {
	url string
	bin string // the directory of its programs
	dir string
}

// postgresPrograms finds the directory of initdb and pg_ctl, or returns nothing.
func postgresPrograms() string {
	if path, err := exec.LookPath("initdb"); err == nil {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(real)
		}
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		return ""
	}
	slices.Sort(found)
	return filepath.Dir(found[len(found)-1])
}

// startPostgres makes a cluster, starts it, and creates River's tables.
func startPostgres(ctx context.Context, bin string) (*postgresServer, error) {
	dir, err := os.MkdirTemp("", "dulybench")
	if err != nil {
		return nil, err
	}
	s := &postgresServer{bin: bin, dir: dir}
	if err := s.start(ctx); err != nil {
		s.stop()
		return nil, fmt.Errorf("PostgreSQL: %w", err)
	}
	return s, nil
}

func (s *postgresServer) start(ctx context.Context) error {
	if os.Getuid() == 0 { // as which the server refuses to run
		owner, err := user.Lookup("postgres")
		if err != nil {
			return err
		}
		uid, err := strconv.Atoi(owner.Uid)
		if err != nil {
			return err
		}
		if err := os.Chown(s.dir, uid, -1); err != nil {
			return err
		}
	}
	port, err := freePort(ctx)
	if err != nil {
		return err
	}
	if err := s.run(ctx, "initdb", "-D", s.data(), "-A", "trust", "-U", "postgres"); err != nil {
		return err
	}
	settings := fmt.Sprintf("-c listen_addresses=127.0.0.1 -c port=%s -c unix_socket_directories=%s", port, s.dir)
	if err := s.run(ctx, "pg_ctl", "-D", s.data(), "-w", "-l", filepath.Join(s.dir, "log"), "-o", settings, "start"); err != nil {
		return err
	}
	s.url = "postgres://postgres@127.0.0.1:" + port + "/postgres?sslmode=disable"
	return s.migrate(ctx)
}

func (s *postgresServer) data() string { return filepath.Join(s.dir, "data") }

// run runs one of the server's programs, as its user if this program is root's.
func (s *postgresServer) run(ctx context.Context, program string, args ...string) error {
	command := append([]string{filepath.Join(s.bin, program)}, args...)
	if os.Getuid() == 0 {
		command = append([]string{"runuser", "-u", "postgres", "--"}, command...)
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...) //nolint:gosec // the server's own program
	cmd.Dir = s.dir
	// Not into a pipe: the server inherits it, and Wait would wait for its end.
	log, err := os.OpenFile(filepath.Join(s.dir, "programs.log"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("%s: %w\n%s", program, err, text)
	}
	return nil
}

func (s *postgresServer) migrate(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, s.url)
	if err != nil {
		return err
	}
	defer pool.Close()
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: riverLogger()})
	if err != nil {
		return err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

// clear removes every job.
func (s *postgresServer) clear(ctx context.Context) error {
	_, err := s.query(ctx, "TRUNCATE river_job")
	return err
}

// version is the server's own word.
func (s *postgresServer) version(ctx context.Context) (string, error) {
	return s.query(ctx, "SHOW server_version")
}

// query returns the first value of a statement, if it has one.
func (s *postgresServer) query(ctx context.Context, sql string) (value string, err error) {
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	rows, err := conn.Query(ctx, sql)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	if rows.Next() && len(rows.FieldDescriptions()) > 0 {
		err = rows.Scan(&value)
	}
	rows.Close()
	return value, errors.Join(err, rows.Err())
}

// stop ends the server and removes what it has stored.
func (s *postgresServer) stop() {
	if _, err := os.Stat(filepath.Join(s.data(), "postmaster.pid")); err == nil {
		_ = s.run(context.Background(), "pg_ctl", "-D", s.data(), "-m", "immediate", "-w", "stop")
	}
	_ = os.RemoveAll(s.dir)
}
