package queue

// The codecs of what is stored, for tests that write it or read it themselves.
var (
	EncodeRecord  = encodeRecord
	DecodeRecord  = decodeRecord
	EncodeFailure = encodeFailure
	DecodeFailure = decodeFailure
	CheckName     = checkName
	CheckText     = checkText
)
