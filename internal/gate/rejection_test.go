// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const unexpectedAdmission = "UnexpectedAdmissionError"

// rejectedPod returns a pod of yesterday. The API server stored its rejection at a time.
func rejectedPod(stored time.Time, reason string, change ...func(*BoundPod)) BoundPod {
	yesterday := epoch.Add(-24 * time.Hour)
	p := BoundPod{Created: yesterday, Finished: true, Rejection: &Rejection{Reason: reason, Start: yesterday, Reported: stored}}
	for _, c := range change {
		c(&p)
	}
	return p
}

// Rejections count if the kubelet's reason can be attributed to what the gate waits for, and the
// gate concerns the pod.
func TestRejectedFor(t *testing.T) {
	closed := Closure{From: epoch.Add(-time.Minute), Until: epoch, NewBoot: true}
	closed.Taint, _ = parseTaint(cniTaint)
	stored := epoch.Add(-20 * time.Second)
	with := func(effect corev1.TaintEffect) Closure {
		c := closed
		c.Taint.Effect = effect
		return c
	}
	for name, c := range map[string]struct {
		closure Closure
		pod     BoundPod
		want    Certainty
	}{
		"the device plugin had not registered":      {closed, rejectedPod(stored, unexpectedAdmission), Certain},
		"it had reported some of its devices":       {closed, rejectedPod(stored, "TopologyAffinityError"), Certain},
		"the node had no devices":                   {closed, rejectedPod(stored, "OutOfnvidia.com/gpu"), Certain},
		"the node had no huge pages":                {closed, rejectedPod(stored, "OutOfhugepages-2Mi"), Certain},
		"the node had too little CPU":               {closed, rejectedPod(stored, "OutOfcpu"), Impossible},
		"too little memory":                         {closed, rejectedPod(stored, "OutOfmemory"), Impossible},
		"too little storage":                        {closed, rejectedPod(stored, "OutOfephemeral-storage"), Impossible},
		"too many pods":                             {closed, rejectedPod(stored, "OutOfpods"), Impossible},
		"out of nothing":                            {closed, rejectedPod(stored, "OutOf"), Impossible},
		"the taint evicts":                          {with(corev1.TaintEffectNoExecute), rejectedPod(stored, "TaintToleration"), Certain},
		"another taint evicts":                      {closed, rejectedPod(stored, "TaintToleration"), Impossible},
		"the labels of the node have changed":       {closed, rejectedPod(stored, "NodeAffinity"), Impossible},
		"a port is in use":                          {closed, rejectedPod(stored, "NodePorts"), Impossible},
		"the node shuts down":                       {closed, rejectedPod(stored, "NodeShutdown"), Impossible},
		"the kubelet evicted it":                    {closed, rejectedPod(stored, "Evicted"), Impossible},
		"it took too long":                          {closed, rejectedPod(stored, "DeadlineExceeded"), Impossible},
		"it failed without a reason":                {closed, rejectedPod(stored, "", func(p *BoundPod) { p.Rejection = nil }), Impossible},
		"it tolerates the taint":                    {closed, rejectedPod(stored, unexpectedAdmission, func(p *BoundPod) { p.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} }), Impossible},
		"it is being deleted":                       {closed, rejectedPod(stored, unexpectedAdmission, func(p *BoundPod) { p.Terminating = true }), Impossible},
		"it is a mirror pod":                        {closed, rejectedPod(stored, unexpectedAdmission, func(p *BoundPod) { p.Mirror = true }), Impossible},
		"it has a controller":                       {closed, rejectedPod(stored, unexpectedAdmission, func(p *BoundPod) { p.Owned = true }), Certain},
		"it is a daemon":                            {closed, rejectedPod(stored, unexpectedAdmission, func(p *BoundPod) { p.Owned, p.Daemon = true, true }), Certain},
		"the kubelet says that it was bound later":  {closed, rejectedPod(stored, unexpectedAdmission, func(p *BoundPod) { p.Bound = epoch.Add(time.Second) }), Certain},
		"the taint does not keep pods off the node": {with(corev1.TaintEffectPreferNoSchedule), rejectedPod(stored, unexpectedAdmission), Impossible},
	} {
		if got := c.closure.Rejected(&c.pod); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
		if c.closure.Bypassed(&c.pod) != Impossible {
			t.Errorf("%s: the pod bypassed the gate without having started", name)
		}
	}
}

// How certain it is that the gate was closed follows from when the API server stored the kubelet's
// status, from the pod's start time, and from when its containers had ended. Times are in seconds
// before the opening.
func TestRejectedWhen(t *testing.T) {
	at := func(secondsBefore float64) time.Time {
		return epoch.Add(-time.Duration(secondsBefore * float64(time.Second)))
	}
	reboot := &Closure{From: at(59.5), Until: epoch, NewBoot: true}
	reboot.Taint, _ = parseTaint(cniTaint)
	closed := &Closure{Taint: reboot.Taint, From: at(59.5), Until: epoch}
	brief := &Closure{Taint: reboot.Taint, From: at(3), Until: epoch, NewBoot: true}
	ended := func(secondsBefore float64) func(*BoundPod) {
		return func(p *BoundPod) { p.Rejection.Ended = at(secondsBefore) }
	}
	firstSeen := func(secondsBefore float64) func(*BoundPod) {
		return func(p *BoundPod) {
			p.Created, p.Rejection.Start = at(secondsBefore+1), at(secondsBefore)
		}
	}
	for name, c := range map[string]struct {
		closure *Closure
		stored  float64
		change  func(*BoundPod)
		want    Certainty
	}{
		"in the new boot": {reboot, 50, nil, Certain},
		"in the second in which the new boot was observed": {reboot, 60, nil, Certain},
		"just before that":     {reboot, 61, nil, Possible},
		"a minute before that": {reboot, 120, nil, Possible},
		"in the boot before":   {reboot, 121, nil, Impossible},
		"the status was stored again when the plugin registered":       {reboot, 1, ended(62), Certain},
		"the same, after the opening":                                  {reboot, -2, ended(62), Certain},
		"it was stored late, because the kubelet checks containers":    {brief, -9, nil, Certain},
		"after the kubelet has reported everything":                    {reboot, -16, nil, Impossible},
		"stored in this boot, but its containers ended long before it": {reboot, 50, ended(121), Possible},
		"the same, before the boot was observed":                       {reboot, 70, ended(3600), Possible},
		"its containers ended with the boot before":                    {reboot, 50, ended(120), Certain},
		"the kubelet restarted, without a reboot":                      {closed, 30, nil, Certain},
		"when the gate closed, without a reboot":                       {closed, 60, nil, Possible},
		"just before that, without a reboot":                           {closed, 61, nil, Impossible},
		"before it has reported everything, without a reboot":          {closed, 46, nil, Possible},
		"after that, without a reboot":                                 {closed, 45, nil, Certain},
		"close to the opening, without a reboot":                       {closed, 1, nil, Possible},
		"after the opening, without a reboot":                          {closed, -15, nil, Possible},
		"long after the opening, without a reboot":                     {closed, -16, nil, Impossible},
		"a new pod, while the gate was closed":                         {closed, 50, firstSeen(55), Certain},
		"a new pod, close to the opening":                              {closed, 0, firstSeen(1), Possible},
		"a new pod, after the opening":                                 {closed, -5, func(p *BoundPod) { firstSeen(-3)(p); p.Created = at(30) }, Impossible},
		"a new pod, created after the opening":                         {closed, -5, firstSeen(-2), Impossible},
		"a new pod, bound just before the reboot":                      {reboot, 55, firstSeen(65), Certain},
		"at an unknown time":                                           {reboot, 50, func(p *BoundPod) { p.Rejection.Reported = time.Time{} }, Impossible},
		"without a start time":                                         {reboot, 50, func(p *BoundPod) { p.Rejection.Start = time.Time{} }, Certain},
	} {
		p := rejectedPod(at(c.stored), unexpectedAdmission)
		if c.change != nil {
			c.change(&p)
		}
		if got := c.closure.Rejected(&p); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
