package queue

import "github.com/dulyhq/duly"

// The codecs of what is stored, for tests that write it or read it themselves.
var (
	DecodeRecord  = decodeRecord
	EncodeFailure = encodeFailure
	DecodeFailure = decodeFailure
	CheckName     = checkName
	CheckText     = checkText
)

// Looked counts the calls of Wait that have looked at their task and wait.
func (q *Queue) Looked() int {
	q.waits.mu.Lock()
	defer q.waits.mu.Unlock()
	n := 0
	for _, some := range q.waits.byID {
		for _, w := range some {
			if w.looked {
				n++
			}
		}
	}
	return n
}

// EncodeRecord is the record of one task.
func EncodeRecord(t *duly.Task) ([]byte, error) {
	var r records
	err := r.add(t)
	return r.buf.Bytes(), err
}
