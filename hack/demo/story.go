package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/hack/install"
	platform "github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/generated/clientset/versioned"
)

const (
	namespace = "prod"
	app       = "payments"
	config    = "payments-config"
)

// story is what the steps share.
type story struct {
	narrator
	root       string
	cp         *controlplane.ControlPlane
	kube       kubernetes.Interface
	steadwatch versioned.Interface
	controller *controlplane.Program
}

// tell walks through the steps on a full control plane that is empty yet.
func tell(ctx context.Context, cp *controlplane.ControlPlane, root string, once bool, n narrator) (err error) {
	s := &story{narrator: n, root: root, cp: cp}
	if s.kube, err = kubernetes.NewForConfig(cp.Config()); err != nil {
		return err
	}
	if s.steadwatch, err = versioned.NewForConfig(cp.Config()); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{
		s.install, s.startController, s.applyWebApp, s.applyConfig, s.rollConfig, s.deleteService,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}

	if !once {
		s.step("Done. The control plane and the controller run on; Ctrl-C ends and removes everything.",
			"Try it from another terminal:",
			"  export KUBECONFIG="+cp.KubeconfigFile(),
			"  kubectl -n prod get webapp payments -w            # "+s.kubectl()+" if you have none",
			"  kubectl -n prod scale webapp payments --replicas=5",
			"  kubectl -n prod delete webapp payments            # drains first, then everything is gone",
			"The controller's log: "+s.controller.LogFile())
		select {
		case <-ctx.Done():
		case <-s.controller.Done():
			return fmt.Errorf("the controller ended with exit code %d:\n%s", s.controller.ExitCode(), s.controller.Log())
		}
	}
	s.step("Stopping: the controller finishes what it is at, releases its Lease, and all is removed.")
	if code := s.controller.Stop(30 * time.Second); code != 0 {
		return fmt.Errorf("the controller ended with exit code %d:\n%s", code, s.controller.Log())
	}
	return nil
}

func (s *story) kubectl() string { return s.cp.Binary("kubectl") }

func (s *story) install(ctx context.Context) error {
	s.step("Installing the CRDs, the ServiceAccount and its RBAC rules, as `kubectl apply -k manifests` does.",
		"All but the Deployment: there is no container runtime here, so the controller will be a local process.")
	return install.Manifests(ctx, s.cp, s.root)
}

func (s *story) startController(ctx context.Context) error {
	s.step("Compiling and starting the controller under that ServiceAccount, not as admin.",
		"It takes the Lease steadwatch-system/steadwatch first: only the leader reconciles.")
	binary, err := install.Binary(ctx, s.root, s.cp.Dir())
	if err != nil {
		return err
	}
	kubeconfig, err := install.Kubeconfig(ctx, s.cp)
	if err != nil {
		return err
	}
	health, err := freeAddress()
	if err != nil {
		return err
	}
	s.controller, err = s.cp.StartProgram("controller", binary,
		"--kubeconfig="+kubeconfig, "--leader-election-namespace="+install.Namespace,
		"--health-probe-bind-address="+health, "--metrics-bind-address=0", "--debug-bind-address=0")
	if err != nil {
		return err
	}
	return s.until(ctx, "the controller to hold the Lease", func(ctx context.Context) (string, bool, error) {
		lease, err := s.kube.CoordinationV1().Leases(install.Namespace).Get(ctx, "steadwatch", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return "no Lease yet", false, nil
		}
		if err != nil {
			return "", false, err
		}
		if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
			return "nobody holds the Lease", false, nil
		}
		return "leader is " + *lease.Spec.HolderIdentity, true, nil
	})
}

func (s *story) applyWebApp(ctx context.Context) error {
	s.step("Applying the WebApp payments, on purpose before the ConfigMap that it refers to.",
		"A missing reference is a state to show, not an error to retry.")
	if err := s.cp.Apply(ctx, []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: "+namespace+"}\n")); err != nil {
		return err
	}
	if err := s.cp.ApplyFile(ctx, filepath.Join(s.root, "manifests", "samples", "webapp.yaml")); err != nil {
		return err
	}
	return s.untilCondition(ctx, platform.ConditionDependenciesReady, metav1.ConditionFalse)
}

func (s *story) applyConfig(ctx context.Context) error {
	s.step("Creating the ConfigMap. Nobody touches the WebApp: the ConfigMap's own event finds it through an index.")
	if err := s.cp.ApplyFile(ctx, filepath.Join(s.root, "manifests", "samples", "configmap.yaml")); err != nil {
		return err
	}
	if err := s.untilCondition(ctx, platform.ConditionReady, metav1.ConditionTrue); err != nil {
		return err
	}
	return s.untilPods(ctx, "3 Pods to be Running", func(pods []corev1.Pod) bool { return len(pods) == 3 })
}

func (s *story) rollConfig(ctx context.Context) error {
	s.step("Changing the ConfigMap's data. A hash of it stands in the Pod template, so the Pods are replaced, once.")
	before, err := s.pods(ctx)
	if err != nil {
		return err
	}
	old := map[types.UID]bool{}
	for _, pod := range before {
		old[pod.UID] = true
	}
	patch := []byte(`{"data":{"LOG_LEVEL":"debug"}}`)
	if _, err := s.kube.CoreV1().ConfigMaps(namespace).Patch(ctx, config, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	return s.untilPods(ctx, "3 new Pods to be Running", func(pods []corev1.Pod) bool {
		for _, pod := range pods {
			if old[pod.UID] {
				return false
			}
		}
		return len(pods) == 3
	})
}

func (s *story) deleteService(ctx context.Context) error {
	s.step("Deleting the Service behind the controller's back.",
		"The delete event leads to its owner by owner reference, and the next pass puts it back.")
	before, err := s.kube.CoreV1().Services(namespace).Get(ctx, app, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := s.kube.CoreV1().Services(namespace).Delete(ctx, app, metav1.DeleteOptions{}); err != nil {
		return err
	}
	err = s.until(ctx, "the Service to be back", func(ctx context.Context) (string, bool, error) {
		after, err := s.kube.CoreV1().Services(namespace).Get(ctx, app, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return "no Service", false, nil
		}
		if err != nil {
			return "", false, err
		}
		return fmt.Sprintf("Service %s is back as %s", after.Name, after.UID), after.UID != before.UID, nil
	})
	if err != nil {
		return err
	}
	return s.untilCondition(ctx, platform.ConditionReady, metav1.ConditionTrue)
}

// untilCondition reports each change of the WebApp's conditions on the way.
func (s *story) untilCondition(ctx context.Context, condition string, status metav1.ConditionStatus) error {
	return s.until(ctx, fmt.Sprintf("%s=%s", condition, status), func(ctx context.Context) (string, bool, error) {
		webapp, err := s.steadwatch.PlatformV1alpha1().WebApps(namespace).Get(ctx, app, metav1.GetOptions{})
		if err != nil {
			return "", false, err
		}
		seen := meta.FindStatusCondition(webapp.Status.Conditions, condition)
		if seen == nil {
			return condition + " has not been written yet", false, nil
		}
		current := webapp.Status.ObservedGeneration == webapp.Generation
		return fmt.Sprintf("%s=%s (%s): %s", seen.Type, seen.Status, seen.Reason, seen.Message), current && seen.Status == status, nil
	})
}

func (s *story) pods(ctx context.Context) ([]corev1.Pod, error) {
	webapp, err := s.steadwatch.PlatformV1alpha1().WebApps(namespace).Get(ctx, app, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	pods, err := s.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: webapp.Status.Selector})
	if err != nil {
		return nil, err
	}
	var running []corev1.Pod
	for _, pod := range pods.Items {
		if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
			running = append(running, pod)
		}
	}
	return running, nil
}

func (s *story) untilPods(ctx context.Context, what string, enough func([]corev1.Pod) bool) error {
	return s.until(ctx, what, func(ctx context.Context) (string, bool, error) {
		pods, err := s.pods(ctx)
		return fmt.Sprintf("%d Pods are Running", len(pods)), err == nil && enough(pods), err
	})
}

// until asks every 200 ms, for a minute at most, and tells each new answer.
func (s *story) until(ctx context.Context, what string, ask func(context.Context) (string, bool, error)) error {
	s.see("waiting for %s", what)
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("a minute has passed"))
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	last := ""
	for {
		answer, done, err := ask(ctx)
		if err != nil {
			answer = err.Error()
		}
		if answer != last {
			s.see("%s", answer)
			last = answer
		}
		if done && err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w; last seen: %s\nthe controller's log:\n%s", what, context.Cause(ctx), last, s.controller.Log())
		case <-s.controller.Done():
			return fmt.Errorf("wait for %s: the controller ended with exit code %d:\n%s", what, s.controller.ExitCode(), s.controller.Log())
		case <-tick.C:
		}
	}
}

func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}
