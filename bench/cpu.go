package main

import "context"

// cpuSuite adds up what the enqueue and process suites have seen a task cost
// Redis. A task that asynq takes when it is due already, as in the process
// suite, is spared the way by its set of scheduled ones.
func cpuSuite(ctx context.Context, r *rig) error {
	return r.alternate(ctx, "cpu", r.rounds, nil, func(_ context.Context, t *trial) error {
		if t.sys.kind() != onRedis {
			return nil
		}
		in, ok := r.report.find("cpu", t.sys.name(), "enqueue, "+inBatches.String(), t.round)
		if !ok {
			in, ok = r.report.find("cpu", t.sys.name(), "enqueue, "+singly.String(), t.round)
		}
		out, both := r.report.find("cpu", t.sys.name(), "process, "+fullSpeed.String(), t.round)
		if !ok || !both {
			r.say("cpu needs enqueue and process in the same run: nothing to add up for %s", t.sys.name())
			return nil
		}
		t.record("enqueue in batches or from 256 callers + process at concurrency 100", "µs", in+out)
		return nil
	})
}
