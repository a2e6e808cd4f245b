package queue

import "strconv"

// keys spells the Redis keys of one queue, and which of them each script takes.
// doc.go says what they hold.
type keys struct {
	due, leased, dead, task, next, fail, crash, cancel, fence, lock, pop, conf, stat, trial, wake string
	parked, turns, blocked, done, result, progress, wanted, ended                                 string

	lockPrefix string // of the locks that share the queue's hash tag
}

func newKeys(prefix, name string, instance uint64) keys {
	tag := prefix + ":{" + name + "}:"
	return keys{
		due: tag + "due", leased: tag + "leased", dead: tag + "dead",
		task: tag + "task", next: tag + "next", fail: tag + "fail", crash: tag + "crash", cancel: tag + "cancel",
		fence: tag + "fence", lock: tag + ownLock, pop: tag + "pop:" + strconv.FormatUint(instance, 36),
		conf: tag + "conf", stat: tag + "stat", trial: tag + "trial", wake: tag + "wake",
		parked: tag + "parked", turns: tag + "turns", blocked: tag + "blocked",
		done: tag + "done", result: tag + "result", progress: tag + "progress", wanted: tag + "wanted", ended: tag + "ended",
		lockPrefix: tag + "lock:",
	}
}

// ownLock is the name under which the queue locks itself. Its key lies outside
// lockPrefix, so that no lock key of a task can spell it.
const ownLock = "lock"

func (k *keys) ownPrefix() string { return k.lock[:len(k.lock)-len(ownLock)] }

// traces are what tasks leave behind when they end.
func (k *keys) traces(before ...string) []string {
	return append(before, k.done, k.result, k.progress, k.wanted, k.ended)
}

func (k *keys) forEnqueue() []string {
	return []string{
		k.due, k.task, k.dead, k.next, k.fail, k.crash, k.stat, k.wake, k.parked, k.turns, k.blocked,
		k.done, k.result, k.progress, k.cancel,
	}
}

func (k *keys) forPop() []string {
	return k.traces(
		k.lock, k.due, k.leased, k.task, k.fence, k.pop, k.stat, k.wake,
		k.dead, k.next, k.fail, k.crash, k.conf, k.trial, k.parked, k.turns, k.blocked, k.cancel,
	)
}

func (k *keys) forSettle() []string {
	return k.traces(k.leased, k.due, k.task, k.dead, k.next, k.fail, k.crash, k.stat, k.wake, k.conf, k.cancel)
}

func (k *keys) forExtend() []string { return []string{k.leased, k.cancel} }

func (k *keys) forCancel() []string {
	return k.traces(
		k.due, k.task, k.dead, k.next, k.fail, k.crash, k.stat, k.parked, k.turns, k.blocked, k.wake,
		k.cancel, k.fence,
	)
}

func (k *keys) forReschedule() []string {
	return []string{k.due, k.task, k.dead, k.next, k.wake, k.parked, k.turns, k.blocked, k.done}
}

func (k *keys) forProgress() []string { return []string{k.leased, k.progress} }

func (k *keys) forWait() []string { return k.traces(k.due, k.dead, k.task, k.fail, k.crash) }

func (k *keys) forGet() []string {
	return []string{k.due, k.dead, k.task, k.next, k.fail, k.crash, k.parked, k.done, k.result, k.progress}
}

func (k *keys) forList(s State) []string {
	set := map[State]string{Due: k.due, Parked: k.parked, Leased: k.leased, Dead: k.dead, Done: k.done}[s]
	return []string{set, k.task, k.fail, k.crash, k.result, k.progress}
}

func (k *keys) forStats() []string {
	return []string{k.due, k.leased, k.dead, k.conf, k.stat, k.lock, k.parked, k.done}
}

func (k *keys) forRevive() []string {
	return []string{k.dead, k.due, k.fail, k.crash, k.stat, k.wake}
}

func (k *keys) forPurge() []string {
	return []string{k.dead, k.task, k.fail, k.crash, k.stat, k.progress}
}

func (k *keys) forNow() []string { return []string{k.due} }

func (k *keys) forPause() []string { return []string{k.conf, k.wake} }

func (k *keys) forLimit() []string { return []string{k.conf, k.wake} }
