// Package monitoring holds the tests of manifests/monitoring and docs/runbooks.
// There is nothing else in it.
//
//   - promtool_test.go runs promtool on the rules and on testdata/: for every alert
//     a file that shows it firing, not firing, and not firing for a standby;
//     start.yaml and leader-change.yaml are about all of them together.
//   - rules_test.go keeps prometheusrule.yaml equal to rules.yaml, and alerts and
//     runbooks together.
//   - names_test.go compares every metric and label value that rules, tests and
//     runbooks name with what the controller's binary serves.
//
// promtool is found in PATH; Debian and Ubuntu have it in the package prometheus.
// Without it its tests are skipped on a laptop and fail under CI=true.
//
// # Caveats
//
// promtool shows that a rule does what its test says for the numbers in the test.
// That the process shows these numbers when something is wrong is for the system
// tests of the packages that count them to show.
//
// The kinds of prometheus-operator are not validated here: its CRDs are no part of
// this repository.
package monitoring
