package main

func Example() {
	main()
	// Output:
	// at most 2 at once: true
	// 30 calls at 50 a second, the first 5 at once, take half a second: true
	// the limits are {Running:0 Rate:50 Burst:5}
	// the calls are done, and reports are left: true
	// one report at a time: true
}
