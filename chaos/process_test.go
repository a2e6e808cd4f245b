package chaos

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
	"github.com/dulyhq/duly/worker"
)

// processEnv, if set, makes this binary a worker process; it holds what that is told.
const processEnv = "DULY_CHAOS_PROCESS"

// A place is where Redis is.
type place struct {
	Socket  string   // of a single server
	Addrs   []string // of the nodes of a cluster, of sentinels, or of a single server
	Cluster bool
	Master  string // the name by which sentinels know it
}

// dial returns a client with the defaults that an application has.
func (p place) dial() redis.UniversalClient {
	quiet := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled} // of which a plain Redis knows nothing
	switch {
	case p.Socket != "":
		return redis.NewClient(&redis.Options{Network: "unix", Addr: p.Socket, MaintNotificationsConfig: quiet})
	case p.Cluster:
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: p.Addrs, MaintNotificationsConfig: quiet})
	case p.Master != "":
		return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: p.Master, SentinelAddrs: p.Addrs})
	}
	return redis.NewClient(&redis.Options{Addr: p.Addrs[0], MaintNotificationsConfig: quiet})
}

// A process is what a worker process is told.
type process struct {
	Redis      place
	More       []string      // names of queues besides
	Slots      int           // default: 4
	Lease      time.Duration // default: that of workers
	Drain      time.Duration // likewise
	MaxCrashes int           // default: that of queues
	Acks       int           // replicas that confirm what is enqueued
	Hesitate   time.Duration // before each settlement: a pause then falls between a look at the lease and its use
	Log        string        // file of its runs
}

// queueName is that of every scenario's queue.
const queueName = "tasks"

func (p *process) open() (*queue.Queue, redis.UniversalClient, error) {
	rdb := p.Redis.dial()
	q, err := queue.New(rdb, queueName, queue.Config{MaxCrashes: p.MaxCrashes, ReplicaAcks: p.Acks})
	return q, rdb, err
}

// others opens the queues besides.
func (p *process) others(rdb redis.UniversalClient) (all []*queue.Queue, err error) {
	for _, name := range p.More {
		q, wrong := queue.New(rdb, name, queue.Config{MaxCrashes: p.MaxCrashes, ReplicaAcks: p.Acks})
		all, err = append(all, q), errors.Join(err, wrong)
	}
	return all, err
}

// A run is a line in the file of a worker process: a run of a task that begins, or
// that the queue has ended as done. Times are µs.
type run struct {
	ID      string `json:"id"`
	Fence   uint64 `json:"fence"`
	Attempt int    `json:"attempt"`
	Crashes int    `json:"crashes,omitempty"`
	Due     int64  `json:"due"`
	Popped  int64  `json:"popped"`
	At      int64  `json:"at"`
	Acked   bool   `json:"acked,omitempty"`
}

// A runLog appends to a file, each line in one write: a SIGKILL loses none.
type runLog struct {
	mu   sync.Mutex
	file *os.File
}

func (l *runLog) note(d *duly.Delivery, acked bool) error {
	line, err := json.Marshal(run{
		ID: d.ID, Fence: d.Fence, Attempt: d.Attempt, Crashes: d.Crashes,
		Due: d.Due.UnixMicro(), Popped: d.Popped.UnixMicro(), At: time.Now().UnixMicro(), Acked: acked,
	})
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err = l.file.Write(append(line, '\n'))
	return err
}

// A witness is a queue that notes which tasks it has ended as done.
type witness struct {
	*queue.Queue
	log    *runLog
	events *eventLog

	hesitate time.Duration
}

func (w witness) Settle(ctx context.Context, ss []duly.Settlement) ([]*duly.Delivery, error) {
	time.Sleep(w.hesitate)
	lost, err := w.Queue.Settle(ctx, ss)
	if err != nil {
		return lost, err
	}
	gone := make(map[*duly.Delivery]bool, len(lost))
	for _, d := range lost {
		gone[d] = true
	}
	for i := range ss {
		if d := ss[i].Delivery; ss[i].Action == duly.Acked && !gone[d] {
			err = errors.Join(err, w.log.note(d, true))
		}
	}
	return lost, errors.Join(err, w.events.settled(ss, gone))
}

// processMain runs a worker until its standard input ends.
func processMain() int {
	err := work()
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker process:", err)
		return 1
	}
	return 0
}

func work() error {
	var p process
	if err := json.Unmarshal([]byte(os.Getenv(processEnv)), &p); err != nil {
		return err
	}
	file, err := os.OpenFile(p.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	more, err := os.OpenFile(p.Log+".events", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = more.Close() }()
	q, rdb, err := p.open()
	if err != nil {
		return err
	}
	defer func() { _ = rdb.Close() }()
	others, err := p.others(rdb)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var told time.Time
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		told = time.Now()
		cancel()
	}()
	log, events := &runLog{file: file}, &eventLog{file: more}
	mux := handlers(log)
	events.watched(mux)
	fmt.Println("ready")
	cfg := worker.Config{Concurrency: cmp.Or(p.Slots, 4), Lease: p.Lease, DrainTimeout: p.Drain}
	sources := []worker.Source{witness{q, log, events, p.Hesitate}}
	for _, q := range others {
		sources = append(sources, witness{q, log, events, p.Hesitate})
	}
	err = worker.New(mux, cfg, sources...).Run(ctx)
	took := time.Since(told)
	return errors.Join(err, events.note(event{What: stopped, At: told.UnixMicro(), Took: took.Microseconds()}))
}

// handlers are those of every worker process. Each run is noted before it begins.
func handlers(log *runLog) *duly.Mux {
	mux := duly.NewMux()
	mux.Use(func(next duly.Handler) duly.Handler {
		return duly.HandlerFunc(func(ctx context.Context, d *duly.Delivery) error {
			if err := log.note(d, false); err != nil {
				return err
			}
			return next.HandleTask(ctx, d)
		})
	})
	mux.HandleFunc("quick", func(context.Context, *duly.Delivery) error {
		time.Sleep(rand.N(4 * time.Millisecond))
		return nil
	})
	mux.HandleFunc("fails", func(_ context.Context, d *duly.Delivery) error {
		if d.Attempt < 2 {
			return duly.RetryIn(20*time.Millisecond, errors.New("the first attempt fails"))
		}
		return nil
	})
	mux.HandleFunc("takes", func(_ context.Context, d *duly.Delivery) error {
		takes, err := time.ParseDuration(string(d.Payload))
		time.Sleep(takes)
		return err
	})
	mux.HandleFunc("hold", func(ctx context.Context, _ *duly.Delivery) error {
		<-ctx.Done()
		return ctx.Err()
	})
	mux.HandleFunc("poison", func(context.Context, *duly.Delivery) error {
		time.Sleep(20 * time.Millisecond) // what is due with it has begun, and is taken along
		os.Exit(3)
		return nil
	})
	return mux
}
