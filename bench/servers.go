package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// startServers starts PostgreSQL for the whole run, since that takes seconds,
// and leaves out the systems whose server is not installed, saying so. A Redis
// is started for each suite.
func (r *rig) startServers(ctx context.Context) error {
	if _, err := exec.LookPath("redis-server"); err != nil {
		r.leaveOut(onRedis, "no redis-server on the PATH")
	}
	wanted := needs(r.systems, onPostgres) || needs(r.lockings, onPostgres)
	bin := postgresPrograms()
	switch {
	case !wanted:
	case bin == "":
		r.leaveOut(onPostgres, "no initdb on the PATH or in /usr/lib/postgresql")
	default:
		var err error
		if r.postgres, err = startPostgres(ctx, bin); err != nil {
			return err
		}
	}
	if len(r.systems)+len(r.lockings) == 0 {
		return fmt.Errorf("no system is left to measure")
	}
	return nil
}

func (r *rig) stopServers() {
	if r.postgres != nil {
		r.postgres.stop()
	}
}

// needs says whether one of the contenders runs on a server.
func needs[C contender](all []C, kind serverKind) bool {
	return slices.ContainsFunc(all, func(c C) bool { return c.kind() == kind })
}

// leaveOut drops what runs on a server.
func (r *rig) leaveOut(kind serverKind, why string) {
	r.systems = withoutKind(r, r.systems, kind, why)
	r.lockings = withoutKind(r, r.lockings, kind, why)
}

func withoutKind[C contender](r *rig, all []C, kind serverKind, why string) []C {
	return slices.DeleteFunc(slices.Clone(all), func(c C) bool {
		if c.kind() == kind {
			r.say("left out: %s, for there is %s", c.name(), why)
		}
		return c.kind() == kind
	})
}

// compared are the modules whose versions the head of a run tells.
var compared = []string{
	"github.com/hibiken/asynq", "github.com/riverqueue/river", "github.com/redis/go-redis/v9", "github.com/jackc/pgx/v5",
	"github.com/bsm/redislock", "github.com/go-redsync/redsync/v4",
}

// describe prints the machine, the versions and the settings of a run.
func (r *rig) describe(ctx context.Context, w io.Writer) error {
	lines := []string{
		time.Now().UTC().Format("2006-01-02 15:04 MST"),
		fmt.Sprintf("%s, %d CPUs (%s), %s/%s", runtime.Version(), runtime.NumCPU(), processor(), runtime.GOOS, runtime.GOARCH),
		fmt.Sprintf("%d rounds, alternating; task: %d-byte ID, %d-byte payload", r.rounds, idSize, payloadSize),
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		var versions []string
		for _, m := range build.Deps {
			if slices.Contains(compared, m.Path) {
				versions = append(versions, m.Path[strings.Index(m.Path, "/")+1:]+" "+m.Version)
			}
		}
		lines = append(lines, strings.Join(versions, ", "))
	}
	if out, err := exec.CommandContext(ctx, "redis-server", "--version").Output(); err == nil {
		lines = append(lines, strings.TrimSpace(string(out))+"; loopback TCP, no persistence")
	}
	if r.postgres != nil {
		version, err := r.postgres.version(ctx)
		if err != nil {
			return err
		}
		lines = append(lines, "PostgreSQL "+version+"; loopback TCP, the settings of initdb: fsync and synchronous_commit on")
	}
	_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
	return err
}

// processor is the model of the CPU, where the system tells.
func processor() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}
