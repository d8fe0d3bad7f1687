package main_test

import (
	"fmt"
	"os"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// install applies manifests/base/rbac.yaml as kustomize would with the world's
// namespace and a suffix for what belongs to none, with one more service account
// for each replica.
func (w *world) install(replicas ...string) { w.installScoped(true, replicas...) }

// installScoped leaves the ClusterRoleBinding out if everywhere is false.
func (w *world) installScoped(everywhere bool, replicas ...string) {
	w.Helper()
	for _, name := range replicas {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := w.kube.CoreV1().ServiceAccounts(w.system).Create(w.Context(), account, metav1.CreateOptions{}); err != nil {
			w.Fatal(err)
		}
		w.users = append(w.users, w.user(name))
	}
	data, err := os.ReadFile("../../manifests/base/rbac.yaml")
	if err != nil {
		w.Fatal(err)
	}
	rbac := w.kube.RbacV1()
	for document := range strings.SplitSeq(string(data), "\n---\n") {
		var kind metav1.TypeMeta
		w.decode(document, &kind)
		switch kind.Kind {
		case "ServiceAccount":
		case "ClusterRole":
			var o rbacv1.ClusterRole
			w.decode(document, &o)
			o.Name = w.clusterRole()
			_, err = rbac.ClusterRoles().Create(w.Context(), &o, metav1.CreateOptions{})
			w.atEnd(func() error { return rbac.ClusterRoles().Delete(background, o.Name, metav1.DeleteOptions{}) })
		case "ClusterRoleBinding":
			if !everywhere {
				continue
			}
			var o rbacv1.ClusterRoleBinding
			w.decode(document, &o)
			o.Name, o.RoleRef.Name, o.Subjects = w.clusterRole(), w.clusterRole(), w.subjects(o.Subjects, replicas)
			_, err = rbac.ClusterRoleBindings().Create(w.Context(), &o, metav1.CreateOptions{})
			w.atEnd(func() error { return rbac.ClusterRoleBindings().Delete(background, o.Name, metav1.DeleteOptions{}) })
		case "Role":
			var o rbacv1.Role
			w.decode(document, &o)
			_, err = rbac.Roles(w.system).Create(w.Context(), &o, metav1.CreateOptions{})
		case "RoleBinding":
			var o rbacv1.RoleBinding
			w.decode(document, &o)
			o.Subjects = w.subjects(o.Subjects, replicas)
			_, err = rbac.RoleBindings(w.system).Create(w.Context(), &o, metav1.CreateOptions{})
		default:
			w.Fatalf("rbac.yaml has a %s, which this test does not know", kind.Kind)
		}
		if err != nil {
			w.Fatalf("%s: %v", kind.Kind, err)
		}
	}
	for _, user := range w.users {
		w.awaitAllowed(user, authorizationv1.ResourceAttributes{Verb: "create", Group: "coordination.k8s.io", Resource: "leases", Namespace: w.system}, true)
		if everywhere {
			w.awaitAllowed(user, authorizationv1.ResourceAttributes{Verb: "list", Group: "platform.tejo.dev", Resource: "webapps"}, true)
		}
	}
}

func (w *world) clusterRole() string { return "steadwatch-" + w.system }

func (w *world) decode(document string, into any) {
	w.Helper()
	if err := yaml.Unmarshal([]byte(document), into); err != nil {
		w.Fatalf("rbac.yaml: %v", err)
	}
}

func (w *world) subjects(manifest []rbacv1.Subject, replicas []string) []rbacv1.Subject {
	w.Helper()
	if len(manifest) != 1 {
		w.Fatalf("rbac.yaml binds %v, want one service account", manifest)
	}
	subjects := []rbacv1.Subject{}
	for _, name := range replicas {
		s := manifest[0]
		s.Name, s.Namespace = name, w.system
		subjects = append(subjects, s)
	}
	return subjects
}

// bindIn does what manifests/namespaced does for one namespace.
func (w *world) bindIn(namespace string) {
	w.Helper()
	data, err := os.ReadFile("../../manifests/namespaced/rolebindings.yaml")
	if err != nil {
		w.Fatal(err)
	}
	document, _, _ := strings.Cut(string(data), "\n---\n")
	var o rbacv1.RoleBinding
	w.decode(document, &o)
	o.Namespace, o.RoleRef.Name, o.Subjects[0].Namespace = namespace, w.clusterRole(), w.system
	if _, err := w.kube.RbacV1().RoleBindings(namespace).Create(w.Context(), &o, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	w.awaitAllowed(w.user(o.Subjects[0].Name), authorizationv1.ResourceAttributes{
		Verb: "list", Group: "platform.tejo.dev", Resource: "webapps", Namespace: namespace}, true)
}

// setRules changes the rules of the ClusterRole or, for the leases, the Role, and
// waits until the API server goes by them.
func (w *world) setRules(rules []rbacv1.PolicyRule, lease bool) {
	w.Helper()
	w.eventually(patience, "the rules to be changed", func() (bool, string) {
		var err error
		if lease {
			var o *rbacv1.Role
			if o, err = w.kube.RbacV1().Roles(w.system).Get(w.Context(), "steadwatch-leases", metav1.GetOptions{}); err == nil {
				o.Rules = rules
				_, err = w.kube.RbacV1().Roles(w.system).Update(w.Context(), o, metav1.UpdateOptions{})
			}
		} else {
			var o *rbacv1.ClusterRole
			if o, err = w.kube.RbacV1().ClusterRoles().Get(w.Context(), w.clusterRole(), metav1.GetOptions{}); err == nil {
				o.Rules = rules
				_, err = w.kube.RbacV1().ClusterRoles().Update(w.Context(), o, metav1.UpdateOptions{})
			}
		}
		return err == nil, fmt.Sprint(err)
	})
}

func (w *world) getRules(lease bool) []rbacv1.PolicyRule {
	w.Helper()
	if lease {
		o, err := w.kube.RbacV1().Roles(w.system).Get(w.Context(), "steadwatch-leases", metav1.GetOptions{})
		if err != nil {
			w.Fatal(err)
		}
		return o.Rules
	}
	o, err := w.kube.RbacV1().ClusterRoles().Get(w.Context(), w.clusterRole(), metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return o.Rules
}

// without returns rules that no longer allow the verbs on the resource.
func (w *world) without(rules []rbacv1.PolicyRule, resource string, verbs ...string) []rbacv1.PolicyRule {
	w.Helper()
	var out []rbacv1.PolicyRule
	found := false
	for _, r := range rules {
		r = *r.DeepCopy()
		if slices.Contains(r.Resources, resource) {
			if len(r.Resources) != 1 {
				w.Fatalf("the rule for %s is for others too: %v", resource, r)
			}
			before := len(r.Verbs)
			r.Verbs = slices.DeleteFunc(r.Verbs, func(v string) bool { return slices.Contains(verbs, v) })
			found = found || len(r.Verbs) < before
		}
		if len(r.Verbs) > 0 {
			out = append(out, r)
		}
	}
	if !found {
		w.Fatalf("no rule allows %v on %s", verbs, resource)
	}
	return out
}

// awaitAllowed waits until the API server's authorizer gives the wanted answer: it
// learns of rules by a watch of its own.
func (w *world) awaitAllowed(user string, what authorizationv1.ResourceAttributes, want bool) {
	w.Helper()
	w.eventually(patience, fmt.Sprintf("%s to be allowed to %s %s: %t", user, what.Verb, what.Resource, want), func() (bool, string) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &what}}
		got, err := w.kube.AuthorizationV1().SubjectAccessReviews().Create(w.Context(), review, metav1.CreateOptions{})
		if err != nil {
			return false, err.Error()
		}
		return got.Status.Allowed == want, got.Status.Reason
	})
}
