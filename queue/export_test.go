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

// EncodeRecord is the record of one task.
func EncodeRecord(t *duly.Task) ([]byte, error) {
	var r records
	err := r.add(t)
	return r.buf.Bytes(), err
}
