package controller

import (
	"time"

	"k8s.io/client-go/tools/cache"
)

// HoldBack makes a Config.Gate that keeps a key back while its object cannot be decoded,
// so that nobody acts on an older version or on none, and while the local copy lacks a
// write made for it. The two are an Informer's Undecodable and a Writes' Pending.
func HoldBack(undecodable func(cache.ObjectName) (reason string, bad bool),
	pending func(cache.ObjectName) (detail string, since time.Time, pending bool)) func(cache.ObjectName) Verdict {
	return func(key cache.ObjectName) Verdict {
		if reason, bad := undecodable(key); bad {
			return Verdict{State: Frozen, Reason: "cannot be decoded: " + reason}
		}
		if detail, _, pending := pending(key); pending {
			return Verdict{State: Stale, Reason: detail}
		}
		return Verdict{}
	}
}
