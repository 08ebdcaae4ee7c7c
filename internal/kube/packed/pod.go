// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"encoding/binary"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/internal/gate"
)

// Pod contains the packed facts about a Pod. It is immutable.
type Pod struct {
	dict *Dictionary
	// list is a list that contains only this pod (see podList).
	list podList
}

// Flags of a pod, in one byte.
const (
	flagReady = 1 << iota
	flagTerminating
	flagFinished
	flagMirror
	flagReadySince
	flagMarkedSince
	flagTerminatingSince
	flagUnlabelled
)

// Pod packs a pod.
func (p *Packer) Pod(pod *gate.Pod) Pod { return p.podIn(p.dictionaries.Current(), pod) }

func (p *Packer) podIn(d *Dictionary, pod *gate.Pod) Pod {
	w := p.writers.Get().(*writer) //nolint:forcetypeassert // the pool has nothing else
	defer p.writers.Put(w)
	w.begin(d, pod.Name)
	defer w.end()
	w.pod(pod)
	var length [binary.MaxVarintLen64]byte
	n := binary.PutUvarint(length[:], uint64(len(w.buf)))
	return Pod{dict: d, list: podList(string(length[:n]) + string(w.buf))}
}

// Unpack returns the facts.
func (p Pod) Unpack() gate.Pod {
	for packed := range p.list.all() {
		return unpackPod(p.dict, packed)
	}
	return gate.Pod{}
}

// Name returns the pod's name in the form namespace/name.
func (p Pod) Name() string {
	for packed := range p.list.all() {
		return podName(p.dict, packed)
	}
	return ""
}

func (w *writer) pod(p *gate.Pod) {
	// Pods of one owner share the part of the name up to the last dash.
	dash := strings.LastIndexByte(p.Name, '-') + 1
	w.shared(p.Name[:dash])
	w.unique(p.Name[dash:])
	w.bytes(podFlags(p))
	w.unique(string(p.UID))
	w.shared(string(p.Owner))
	w.time(p.Created)
	for _, t := range podTimes(p) {
		if !t.at.IsZero() {
			w.time(*t.at)
		}
	}
	w.buf = binary.LittleEndian.AppendUint64(w.buf, uint64(p.Incarnation))
	if p.Run != (gate.Run{}) { // otherwise it takes no space
		w.run(&p.Run)
	}
}

func (w *writer) run(r *gate.Run) {
	var succeeded byte
	if r.Succeeded {
		succeeded = 1
	}
	w.bytes(succeeded)
	w.time(r.Started)
	w.time(r.Ended)
	w.unique(r.Boot)
}

func (r *reader) run() gate.Run {
	return gate.Run{Succeeded: r.byte() == 1, Started: r.time(), Ended: r.time(), Boot: r.text()}
}

// podTime is a time that most pods do not have, and the flag that marks its presence.
type podTime struct {
	at   *time.Time
	flag byte
}

func podTimes(p *gate.Pod) [3]podTime {
	return [3]podTime{{&p.ReadySince, flagReadySince}, {&p.MarkedSince, flagMarkedSince}, {&p.TerminatingSince, flagTerminatingSince}}
}

func podFlags(p *gate.Pod) (flags byte) {
	set := func(is bool, flag byte) {
		if is {
			flags |= flag
		}
	}
	set(p.Ready, flagReady)
	set(p.Terminating, flagTerminating)
	set(p.Finished, flagFinished)
	set(p.Mirror, flagMirror)
	set(p.Unlabelled, flagUnlabelled)
	for _, t := range podTimes(p) {
		set(!t.at.IsZero(), t.flag)
	}
	return flags
}

func podName(d *Dictionary, packed string) string {
	var r reader
	r.begin(d, packed)
	return r.text() + r.text()
}

func unpackPod(d *Dictionary, packed string) gate.Pod {
	var r reader
	r.begin(d, packed)
	p := gate.Pod{Name: r.text() + r.text()}
	flags := r.byte()
	p.Ready = flags&flagReady != 0
	p.Terminating = flags&flagTerminating != 0
	p.Finished = flags&flagFinished != 0
	p.Mirror = flags&flagMirror != 0
	p.Unlabelled = flags&flagUnlabelled != 0
	p.UID = types.UID(r.text())
	p.Owner = types.UID(r.text())
	p.Created = r.time()
	for _, t := range podTimes(&p) {
		if flags&t.flag != 0 {
			*t.at = r.time()
		}
	}
	p.Incarnation = gate.Incarnation(binary.LittleEndian.Uint64([]byte(r.take(8))))
	if r.rest != "" {
		p.Run = r.run()
	}
	return p
}
