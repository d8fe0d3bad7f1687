package canary

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// annotationSequence counts the writes of the process that the Lease's holder names.
const annotationSequence = "steadwatch.tejo.dev/sequence"

// maxConflicts is how often one write is tried again at once because somebody else
// wrote in between.
const maxConflicts = 5

// write reads the Lease from the API server and writes it, or creates it. With ask
// it spends one ask, and reports whether that was granted.
func (c *Canary) write(ctx context.Context, ask bool) (granted bool) {
	c.mu.Lock()
	c.wroteAt = time.Now()
	c.mu.Unlock()
	verb, err := "", error(nil)
	for range maxConflicts {
		var sent time.Time
		var lease *coordinationv1.Lease
		if verb, sent, lease, err = c.tryWrite(ctx, ask); err == nil {
			c.acknowledged(ctx, lease, sent)
			return ask
		}
		if errors.Is(err, errSpent) {
			return false
		}
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && (verb != "update" || !apierrors.IsNotFound(err)) {
			break
		}
		c.mu.Lock()
		c.writes[Conflict]++
		c.mu.Unlock()
	}
	if ctx.Err() == nil {
		c.failed(ctx, verb, err)
	}
	return false
}

// tryWrite makes one attempt, and says which verb failed.
func (c *Canary) tryWrite(ctx context.Context, ask bool) (verb string, sent time.Time, lease *coordinationv1.Lease, err error) {
	verb = "get"
	err = c.call(ctx, func(ctx context.Context) error {
		lease, err = c.leases.Get(ctx, c.cfg.Name, metav1.GetOptions{})
		return err
	})
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return verb, sent, nil, err
	}
	c.mu.Lock()
	if missing {
		c.spent = 0
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: c.cfg.Namespace, Name: c.cfg.Name}}
	} else {
		c.readLocked(ctx, lease)
	}
	if ask && c.spent >= maxAsks {
		c.mu.Unlock()
		return verb, sent, nil, errSpent
	}
	// Somebody else's labels, annotations and fields are kept.
	lease = lease.DeepCopy()
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	switch {
	case ask:
		lease.Annotations[annotationAsks] = strconv.Itoa(c.spent + 1)
	case c.refillLocked(time.Now()):
		delete(lease.Annotations, annotationAsks)
	}
	c.sequence++
	lease.Annotations[annotationSequence] = strconv.FormatInt(c.sequence, 10)
	sent = time.Now()
	// For people to read: nobody compares it.
	lease.Spec.HolderIdentity, lease.Spec.RenewTime = ptr.To(c.cfg.Identity), ptr.To(metav1.NewMicroTime(sent))
	c.mu.Unlock()

	if missing {
		verb = "create"
		err = c.call(ctx, func(ctx context.Context) error {
			lease, err = c.leases.Create(ctx, lease, metav1.CreateOptions{})
			return err
		})
	} else {
		verb = "update"
		err = c.call(ctx, func(ctx context.Context) error {
			lease, err = c.leases.Update(ctx, lease, metav1.UpdateOptions{})
			return err
		})
	}
	return verb, sent, lease, err
}

// reads says whether the Lease can be read at this moment.
func (c *Canary) reads(ctx context.Context) bool {
	var lease *coordinationv1.Lease
	err := c.call(ctx, func(ctx context.Context) (err error) {
		lease, err = c.leases.Get(ctx, c.cfg.Name, metav1.GetOptions{})
		return err
	})
	switch {
	case err == nil:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.readLocked(ctx, lease)
		return true
	case apierrors.IsNotFound(err):
		return true
	case ctx.Err() == nil:
		c.failed(ctx, "get", err)
	}
	return false
}

// call gives one request its deadline. After one that got no answer the next goes
// out on a new connection: the pool would hand back the one that has just failed.
func (c *Canary) call(ctx context.Context, do func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, c.callTimeout)
	defer cancel()
	err := do(bounded)
	var status apierrors.APIStatus
	if err != nil && ctx.Err() == nil && !errors.As(err, &status) {
		c.cutLeases()
	}
	return err
}

// readLocked takes what a GET shows.
func (c *Canary) readLocked(ctx context.Context, lease *coordinationv1.Lease) {
	c.spent = readAsks(lease)
	c.versionLocked(ctx, lease.ResourceVersion)
	// Whoever wrote before this term has nothing to do with it. Once may have been
	// under way when the lead changed.
	switch by := holder(lease); {
	case !c.owned:
	case by == c.cfg.Identity:
		c.rival, c.rivalTurns, c.rivalNamed = "", 0, false
	default:
		if c.rivalTurns++; c.rivalTurns > 1 {
			c.rival = by
		}
	}
}

// versionLocked compares a revision that the API server has just read from or
// written to etcd with the highest one known: it never goes down, unless etcd was
// set back. Lists and watches cannot tell, since an API server that was not
// restarted goes on serving them from its cache.
func (c *Canary) versionLocked(ctx context.Context, version string) {
	order, err := resourceversion.CompareResourceVersion(version, c.highest)
	if err == nil && order < 0 {
		c.rewound, c.rewoundNow, c.rewindUnheard = true, true, true
		c.rewinds++
		c.outstanding, c.late, c.deaf, c.everHeard, c.hearingSince = nil, false, false, false, time.Time{}
		// What the Reflector has heard of lies in a future that did not happen.
		c.watch++
		c.heardVersion, c.heardAt, c.listedVersion = "", time.Time{}, ""
		klog.FromContext(ctx).Error(nil, "The Lease's revision has gone down: etcd was set back", "known", c.highest, "now", version, "remedy", rewoundRemedy)
	}
	c.highest = version
}

// takeRewound says whether etcd was found set back since it was last asked.
func (c *Canary) takeRewound() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.rewoundNow
	c.rewoundNow = false
	return was
}

// acknowledged takes a successful write. Time in which nothing could be written
// counts for no one's lateness, and after it the watch gets time to come back too.
func (c *Canary) acknowledged(ctx context.Context, lease *coordinationv1.Lease, sent time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.failure != nil {
		for i := range c.outstanding {
			c.outstanding[i].acked = c.outstanding[i].acked.Add(now.Sub(c.failedSince))
		}
		c.failure, c.failures, c.deaf, c.chanceSince = nil, 0, false, now
	}
	c.versionLocked(ctx, lease.ResourceVersion)
	c.spent = readAsks(lease)
	c.lastWrite, c.owned = now, true
	c.writes[Acknowledged]++
	c.addBeatLocked(beat{version: lease.ResourceVersion, sequence: sequence(lease), sent: sent, acked: now})
	c.settleLocked(now) // the event may have been faster than the answer
	c.mootLocked()      // and so may a list
}

// failed takes a write that failed.
func (c *Canary) failed(ctx context.Context, verb string, err error) {
	f := c.classify(verb, err)
	klog.FromContext(ctx).V(4).Info("The canary's Lease was not written", "verb", verb, "err", err)
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.failure == nil {
		c.failedSince = now
	}
	c.failure = f
	c.failures++
	c.writeAfter = now.Add(f.retryAfter)
	if f.forbidden {
		c.writes[Refused]++
	} else {
		c.writes[Failed]++
	}
	c.refreshLocked(now)
}

// failure is why a request failed.
type failure struct {
	forbidden       bool // by the authorizer, not by admission or a quota
	answered        bool // by the API server
	retryAfter      time.Duration
	message, remedy string
}

// classify returns nil for no error.
func (c *Canary) classify(verb string, err error) *failure {
	if err == nil {
		return nil
	}
	f := &failure{message: fmt.Sprintf("%s the Lease: %v", verb, err)}
	var status apierrors.APIStatus
	f.answered = errors.As(err, &status)
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		f.retryAfter = time.Duration(seconds) * time.Second
	}
	switch {
	// The words of k8s.io/apiserver for every authorizer. A quota and admission
	// answer with 403 too.
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot "+verb+" resource"):
		f.forbidden = true
		f.message = fmt.Sprintf("may not %s leases.coordination.k8s.io %s in namespace %s: %v", verb, c.cfg.Name, c.cfg.Namespace, err)
		f.remedy = c.grant(verb, err)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		f.remedy = fmt.Sprintf("the namespace %s is being deleted: run somewhere else", c.cfg.Namespace)
	case apierrors.IsNotFound(err):
		f.remedy = fmt.Sprintf("create the namespace: kubectl create namespace %s", c.cfg.Namespace)
	case apierrors.IsForbidden(err):
		f.remedy = "read the message: a quota or an admission policy refuses the Lease"
	case apierrors.IsUnauthorized(err):
		f.remedy = "replace the credentials: the API server does not accept this token or client certificate"
	case apierrors.IsTooManyRequests(err):
		f.remedy = "check the API server's load and its FlowSchemas and PriorityLevelConfigurations"
	case apierrors.IsConflict(err):
		f.remedy = "find out who else writes this Lease all the time"
	case f.answered:
		f.remedy = "read the message, then the log of the API server and the state of etcd"
	default:
		f.remedy = "check that the API server runs and can be reached from here"
	}
	return f
}

var serviceAccount = regexp.MustCompile(`User "system:serviceaccount:([^:"]+):([^"]+)"`)
var user = regexp.MustCompile(`User "([^"]+)"`)

// grant is what an administrator can paste. Where one of the verbs that can be bound
// to a name is missing, all of them are granted, so that it takes one round.
func (c *Canary) grant(verb string, err error) string {
	subject := "--user=NAME"
	if m := serviceAccount.FindStringSubmatch(err.Error()); m != nil {
		subject = fmt.Sprintf("--serviceaccount=%s:%s", m[1], m[2])
	} else if m := user.FindStringSubmatch(err.Error()); m != nil {
		subject = "--user=" + m[1]
	}
	role, rule := c.cfg.Name, "--verb=get,update,list,watch --resource=leases.coordination.k8s.io --resource-name="+c.cfg.Name
	if verb == "create" { // RBAC cannot bind it to a name
		role, rule = c.cfg.Name+"-create", "--verb=create --resource=leases.coordination.k8s.io"
	}
	return fmt.Sprintf("kubectl -n %[1]s create role %[2]s %[3]s && kubectl -n %[1]s create rolebinding %[2]s --role=%[2]s %[4]s", c.cfg.Namespace, role, rule, subject)
}
