package informer_test

import (
	"flag"
	"os"
	"testing"
)

// Parallel tests spend their time waiting for client-go's backoff: more of them at
// once than there are CPUs.
func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f != nil && !set("test.parallel") {
		_ = f.Value.Set("16")
	}
	os.Exit(m.Run())
}

func set(name string) (found bool) {
	flag.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}
