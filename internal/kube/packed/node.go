// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"math"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/internal/gate"
)

// Node contains the packed facts about a Node. It is immutable.
type Node struct {
	// Name is the name of the Node.
	Name string

	dict *Dictionary
	// facts contains everything that decisions depend on except heartbeats. It does not
	// change while the node does not change.
	facts string
	// state contains what changes with each heartbeat.
	state string
}

// Flags of facts, in their first byte.
const (
	flagShuttingDown = 1 << iota
	flagSilent
	flagTainted
	flagRawBoot
)

// Packer packs facts. It is safe for concurrent use.
type Packer struct {
	dictionaries *Dictionaries
	writers      sync.Pool
}

// NewPacker returns a Packer. Packers with the same Dictionaries share texts.
func NewPacker(dictionaries *Dictionaries) *Packer {
	return &Packer{dictionaries: dictionaries, writers: sync.Pool{New: func() any { return new(writer) }}}
}

// Renew replaces the dictionary, as if it were full.
func (p *Packer) Renew() { p.dictionaries.renew(p.dictionaries.current.Load()) }

// Node packs a node. It does not retain n. The result shares memory with known where they
// are equal; known may be nil or another node.
func (p *Packer) Node(n *gate.Node, known *Node) *Node {
	if known == nil {
		known = &Node{Name: n.Name}
	}
	w := p.writers.Get().(*writer) //nolint:forcetypeassert // the pool has nothing else
	defer p.writers.Put(w)
	d := p.dictionaries.Current()
	w.begin(d, n.Name)
	defer w.end()
	packed := &Node{Name: known.Name, dict: d}
	if n.Name != known.Name {
		packed.Name = n.Name
	}
	w.nodeFacts(n)
	packed.facts = w.sharing(known.facts)
	w.restart()
	w.nodeState(n)
	packed.state = w.sharing(known.state)
	return packed
}

// sharing returns the packed string. If it equals known, it returns known, so that both
// share memory.
func (w *writer) sharing(known string) string {
	if string(w.buf) == known {
		return known
	}
	return string(w.buf)
}

// Zone returns the name of the node's zone, like gate.Node.Zone.
func (n *Node) Zone() string {
	var r reader
	r.begin(n.dict, n.facts[1:])
	return r.text()
}

// Silent reports whether the node is unreachable, like gate.Node.Silent.
func (n *Node) Silent() bool { return n.facts[0]&flagSilent != 0 }

// Tainted reports whether the node has a taint.
func (n *Node) Tainted() bool { return n.facts[0]&flagTainted != 0 }

// ResourceVersion returns the node's resource version.
func (n *Node) ResourceVersion() string {
	var r reader
	r.begin(n.dict, n.state)
	return r.version()
}

// UID returns the node's UID.
func (n *Node) UID() types.UID {
	uid, _ := n.identity()
	return uid
}

// BootID returns the node's boot ID.
func (n *Node) BootID() string {
	_, boot := n.identity()
	return boot
}

func (n *Node) identity() (uid types.UID, boot string) {
	var r reader
	r.begin(n.dict, n.facts[1:])
	r.text()
	r.remember(n.Name)
	uid = types.UID(r.define())
	r.time()
	return uid, r.define()
}

// SameFacts reports whether two states of a node differ at most in their resource
// versions, their heartbeats, and whether the Node has annotations. It may return false
// for equal facts if they were packed with different dictionaries or before the
// dictionary contained the texts that they share with others.
func SameFacts(a, b *Node) bool { return a.dict == b.dict && a.Name == b.Name && a.facts == b.facts }

// Unpack returns the facts. They share no memory with n except its name and the
// dictionary.
func (n *Node) Unpack() *gate.Node {
	out := &gate.Node{Name: n.Name}
	var r reader
	r.begin(n.dict, n.facts)
	r.nodeFacts(out)
	r.begin(n.dict, n.state)
	r.nodeState(out)
	return out
}

func (w *writer) nodeFacts(n *gate.Node) {
	var flags byte
	if n.ShuttingDown {
		flags |= flagShuttingDown
	}
	if n.Silent() {
		flags |= flagSilent
	}
	if len(n.Taints) > 0 {
		flags |= flagTainted
	}
	if n.RawBootID != "" {
		flags |= flagRawBoot
	}
	w.bytes(flags)
	w.shared(n.Zone())
	w.remember(n.Name)
	w.define(string(n.UID))
	w.time(n.Created)
	w.define(n.BootID)
	if n.RawBootID != "" { // without an attack, it takes no memory
		w.unique(n.RawBootID)
	}
	w.set(n.Labels)
	each(w, n.Records, w.record)
	each(w, n.Overrides, w.unique)
	w.set(n.Annotations)
	w.set(n.Info)
	each(w, n.Allocatable, func(q resource.Quantity) { w.shared(q.String()) })
	w.taints(n.Taints)
	w.length(len(n.Conditions), n.Conditions == nil)
	for i := range n.Conditions {
		c := &n.Conditions[i]
		w.pair(entry{c.Type, string(c.Status)})
		w.time(c.Transition)
	}
}

func (r *reader) nodeFacts(n *gate.Node) {
	flags := r.byte()
	n.ShuttingDown = flags&flagShuttingDown != 0
	r.text()
	r.remember(n.Name)
	n.UID = types.UID(r.define())
	n.Created = r.time()
	n.BootID = r.define()
	if flags&flagRawBoot != 0 {
		n.RawBootID = r.text()
	}
	n.Labels = r.set()
	n.Records = readEach(r, r.record)
	n.Overrides = readEach(r, r.text)
	n.Annotations = r.set()
	n.Info = r.set()
	n.Allocatable = readEach(r, r.quantity)
	n.Taints = r.taints()
	if count, isNil := r.length(); !isNil {
		n.Conditions = make([]gate.Condition, count)
	}
	for i := range n.Conditions {
		condition := r.pair()
		n.Conditions[i] = gate.Condition{Type: condition.key, Status: corev1.ConditionStatus(condition.value), Transition: r.time()}
	}
}

// nodeState packs what changes with each heartbeat.
func (w *writer) nodeState(n *gate.Node) {
	w.version(n.ResourceVersion)
	if n.HasAnnotations {
		w.uint(1)
	} else {
		w.uint(0)
	}
	for i := range n.Conditions {
		w.time(n.Conditions[i].Heartbeat)
	}
}

func (r *reader) nodeState(n *gate.Node) {
	n.ResourceVersion = r.version()
	n.HasAnnotations = r.uint() == 1
	for i := range n.Conditions {
		n.Conditions[i].Heartbeat = r.time()
	}
}

// version packs a resource version, which is usually a number.
func (w *writer) version(version string) {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil || n > math.MaxInt64 || strconv.FormatUint(n, 10) != version {
		w.uint(0)
		w.unique(version)
		return
	}
	w.uint(n<<1 | 1)
}

func (r *reader) version() string {
	n := r.uint()
	if n&1 == 0 {
		return r.text()
	}
	return strconv.FormatUint(n>>1, 10)
}

// quantity unpacks a quantity. It was valid when it was packed.
func (r *reader) quantity() resource.Quantity { return resource.MustParse(r.text()) }

func (w *writer) taints(taints []corev1.Taint) {
	w.length(len(taints), taints == nil)
	for i := range taints {
		t := &taints[i]
		w.pair(entry{t.Key, t.Value})
		w.shared(string(t.Effect))
		if t.TimeAdded == nil {
			w.uint(0)
			continue
		}
		w.uint(1)
		w.time(t.TimeAdded.Time)
	}
}

func (r *reader) taints() []corev1.Taint {
	count, isNil := r.length()
	if isNil {
		return nil
	}
	taints := make([]corev1.Taint, count)
	for i := range taints {
		t := &taints[i]
		pair := r.pair()
		t.Key, t.Value = pair.key, pair.value
		t.Effect = corev1.TaintEffect(r.text())
		if r.uint() == 1 {
			t.TimeAdded = new(metav1.NewTime(r.time()))
		}
	}
	return taints
}
