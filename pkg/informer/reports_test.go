package informer_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// reports are the reports from the field about objects that cannot be decoded, and
// the tests that show each to be survived.
var reports = map[string]struct {
	what  string
	tests []string
}{
	"R01 kubernetes/kubernetes#57705": {
		"a string given a list ends the watch, again and again",
		[]string{"TestSystemR01R02R10UndecodableObject", "TestMatrix", "TestUndecodableWrittenOften"}},
	"R02 cert-manager#1269": {
		"360d stops all others until it is mended",
		[]string{"TestSystemR01R02R10UndecodableObject", "TestBadObjectIsToldAndMended"}},
	"R04 michelangelo#1318": {
		"9999999h is there before the start",
		[]string{"TestFindBadFields", "TestBadFromTheStart", "TestQuarantine"}},
	"R05 controller-runtime#1032": {
		"an empty quantity in a map: the decoder does not say where",
		[]string{"TestFindBadFields", "TestTolerantWatch"}},
	"R07 linkerd2#14741": {
		"an enum and a filter that are newer than the type: taken; a field of another type: set aside",
		[]string{"TestFindHostileFields", "TestSystemFixesArePasted"}},
	"R08 grafana-operator#85": {
		"an old status does not fit",
		[]string{"TestFindBadFields", "TestFixCommands", "TestSystemFixesArePasted"}},
	"R10 hypershift#9441": {
		"all transitions while it runs, in every way to list and watch",
		[]string{"TestMatrix", "TestSystemMatrix", "TestQuarantine"}},
	"R11 argo-workflows#16140": {
		"bookmarks of another type stall the sync; custom decoding is bypassed; silent skips",
		[]string{"TestTolerantWatch", "TestSystemR01R02R10UndecodableObject", "TestListEqualsTypedClient"}},
	"R13 argo-rollouts#666": {
		"acts on the part that could be read",
		[]string{"TestSystemMatrix", "TestBadObjectIsToldAndMended", "TestQuarantine"}},
	"R14 prometheus-operator#2727": {
		"summary: No is false",
		[]string{"TestFindHostileFields", "TestFixCommands", "TestSystemFixesArePasted"}},
	"R16 keda#4570": {
		"stored in a version that nobody knows",
		[]string{"TestSystemR16R20UnlistableKind"}},
	"R17 provider-keycloak#669": {
		"the conversion webhook refuses one object",
		[]string{"TestSystemR17ConversionOfOneObject"}},
	"R19 cert-manager#3251": {
		"a kind that hangs must not hold up probes or other kinds",
		[]string{"TestSystemOneKindHangs"}},
	"R20 kubernetes/kubernetes#140785": {
		"corrupt bytes in etcd",
		[]string{"TestSystemR16R20UnlistableKind"}},
	"R22 kubebuilder#2524": {
		"an embedded object {}",
		[]string{"TestFindBadFields", "TestFindHostileFields", "TestSystemFixesArePasted"}},
	"R23 kube-rs#1986": {
		"an error in place of a watch is no bad object",
		[]string{"TestTolerantWatch", "TestTolerantListPages"}},
}

// Every test that is named above is there.
func TestReportsHaveTests(t *testing.T) {
	var sources strings.Builder
	for _, folder := range []string{".", "../controller/undecodable", "../../hack/system", "../../cmd/controller"} {
		files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("tests in %s: %v, %v", folder, files, err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			sources.Write(data)
		}
	}
	for report, r := range reports {
		for _, name := range r.tests {
			if !strings.Contains(sources.String(), "\nfunc "+name+"(") {
				t.Errorf("%s (%s): there is no %s", report, r.what, name)
			}
		}
	}
}
