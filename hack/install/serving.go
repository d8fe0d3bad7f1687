package install

import "regexp"

// Addresses are where a controller serves, host:port; "" where it does not, or not yet.
type Addresses struct{ Health, Metrics, Debug string }

var serving = regexp.MustCompile(`"Serving" flag="(health-probe|metrics|debug)-bind-address" address="([^"]+)"`)

// Serving returns the addresses that the controller tells in its log, the last ones if
// it was started several times.
func Serving(log string) Addresses {
	var a Addresses
	for _, m := range serving.FindAllStringSubmatch(log, -1) {
		*map[string]*string{"health-probe": &a.Health, "metrics": &a.Metrics, "debug": &a.Debug}[m[1]] = m[2]
	}
	return a
}
