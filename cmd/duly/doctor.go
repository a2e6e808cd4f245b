package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// doctor checks what the promises of a queue rest on.
func doctor(ctx context.Context, t *tool, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%w: doctor takes no arguments", errUsage)
	}
	info, err := t.rdb.Info(ctx).Result()
	if err != nil {
		return err
	}
	fields := make(map[string]string)
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	findings := diagnose(fields)
	for _, f := range findings {
		if err := t.out.line(f); err != nil {
			return err
		}
	}
	if len(findings) > 0 {
		return fmt.Errorf("%d findings", len(findings))
	}
	return t.out.line("Redis " + fields["redis_version"] + " is set up to keep tasks.")
}

// diagnose reads the fields of INFO.
func diagnose(info map[string]string) []string {
	var found []string
	if major, minor := version(info["redis_version"]); major < 6 || major == 6 && minor < 2 {
		found = append(found, "Redis "+info["redis_version"]+" is too old: Duly needs 6.2 or later.")
	}
	if policy := info["maxmemory_policy"]; policy != "noeviction" {
		found = append(found, "maxmemory-policy is "+policy+": Redis may drop tasks and locks when memory is short; set it to noeviction.")
	}
	if info["aof_enabled"] != "1" {
		found = append(found, "appendonly is off: a crash of Redis loses what came since the last snapshot; turn it on.")
	}
	if info["aof_last_write_status"] == "err" || info["rdb_last_bgsave_status"] == "err" {
		found = append(found, "the last save to disk failed: see the log of Redis.")
	}
	if info["role"] == "slave" {
		found = append(found, "this is a replica: Duly writes, so it needs the master.")
	}
	return found
}

func version(s string) (major, minor int) {
	first, rest, _ := strings.Cut(s, ".")
	second, _, _ := strings.Cut(rest, ".")
	major, _ = strconv.Atoi(first)
	minor, _ = strconv.Atoi(second)
	return major, minor
}
