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

// Node is the packed facts about a Node. It is immutable.
type Node struct {
	// Name is the Node's.
	Name string

	dict *Dictionary
	// facts are what decisions rest on, but for heartbeats: bytes that stay the same while
	// nothing happens.
	facts string
	// state is what changes with each heartbeat.
	state string
}

// Flags of facts, in their first byte.
const (
	flagShuttingDown = 1 << iota
	flagSilent
)

// Packer packs facts. It is safe for concurrent use.
type Packer struct {
	books   *Books
	writers sync.Pool
}

// NewPacker returns a packer. Packers of the same books share texts.
func NewPacker(books *Books) *Packer {
	return &Packer{books: books, writers: sync.Pool{New: func() any { return new(writer) }}}
}

// Renew begins a new dictionary, as one that is worn has it.
func (p *Packer) Renew() { p.books.renew(p.books.current.Load()) }

// Node packs a node, of which it keeps nothing else. What is the same as in known, which
// may be nil and need not be of the same node, shares its memory.
func (p *Packer) Node(n *gate.Node, known *Node) *Node {
	if known == nil {
		known = &Node{Name: n.Name}
	}
	w := p.writers.Get().(*writer) //nolint:forcetypeassert // the pool has nothing else
	defer p.writers.Put(w)
	d := p.books.Dictionary()
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

// sharing returns what has been packed, in the memory of a string that is the same.
func (w *writer) sharing(known string) string {
	if string(w.buf) == known {
		return known
	}
	return string(w.buf)
}

// Zone returns the name of the node's zone, as gate.Node does.
func (n *Node) Zone() string {
	var r reader
	r.begin(n.dict, n.facts[1:])
	return r.text()
}

// Silent tells whether the node is silent, as gate.Node does.
func (n *Node) Silent() bool { return n.facts[0]&flagSilent != 0 }

// ResourceVersion returns the node's resource version.
func (n *Node) ResourceVersion() string {
	var r reader
	r.begin(n.dict, n.state)
	return r.version()
}

// UID returns the node's UID.
func (n *Node) UID() types.UID {
	var r reader
	r.begin(n.dict, n.facts[1:])
	r.know(n.Name)
	r.text()
	return types.UID(r.text())
}

// SameFacts is true only if two states of a node differ in nothing but their resource
// versions and heartbeats, and in whether there are annotations. It is false also of
// equal facts, if they were packed with another dictionary or before others had as much
// in common.
func SameFacts(a, b *Node) bool { return a.dict == b.dict && a.Name == b.Name && a.facts == b.facts }

// Unpack returns the facts. They share memory with nothing that is packed but its name
// and the dictionary.
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
	w.bytes(flags)
	w.text(n.Zone())
	w.know(n.Name)
	w.say(string(n.UID))
	w.time(n.Created)
	w.say(n.BootID)
	w.set(n.Labels)
	each(w, n.Records, w.record)
	each(w, n.Overrides, w.own)
	w.set(n.Annotations)
	w.set(n.Info)
	each(w, n.Allocatable, func(q resource.Quantity) { w.text(q.String()) })
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
	r.know(n.Name)
	n.UID = types.UID(r.say())
	n.Created = r.time()
	n.BootID = r.say()
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

// version packs a resource version, which as a rule is a number.
func (w *writer) version(version string) {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil || n > math.MaxInt64 || strconv.FormatUint(n, 10) != version {
		w.uint(0)
		w.own(version)
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

// quantity unpacks an amount. Every one that was packed can be parsed.
func (r *reader) quantity() resource.Quantity { return resource.MustParse(r.text()) }

func (w *writer) taints(taints []corev1.Taint) {
	w.length(len(taints), taints == nil)
	for i := range taints {
		t := &taints[i]
		w.pair(entry{t.Key, t.Value})
		w.text(string(t.Effect))
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
