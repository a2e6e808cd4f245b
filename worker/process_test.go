package worker_test

const processEnv = "DULY_WORKER_PROCESS"

func processMain() int { return 0 }
