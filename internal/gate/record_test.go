// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"testing"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

func TestRecordText(t *testing.T) {
	full := Record{
		State: v1alpha1.StateClosed, Since: epoch.Add(123456789), Reason: v1alpha1.ReasonRebooted, Boot: "b",
		Taint: "k=v:NoExecute", Source: "crd", Digest: "a b", Fought: 2, FoughtAt: epoch,
		Override: v1alpha1.StateOpen, OverrideSince: epoch,
	}
	const want = `{"state":"Closed","since":"2026-11-20T12:00:00.123Z","reason":"Rebooted","boot":"b","taint":"k=v:NoExecute","source":"crd","digest":"a b","fought":2,"foughtAt":"2026-11-20T12:00:00Z","override":"Open","overrideSince":"2026-11-20T12:00:00Z"}`
	if got := full.String(); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	if got := (Record{State: v1alpha1.StateOpen}).String(); got != `{"state":"Open"}` {
		t.Errorf("empty fields are written: %s", got)
	}
	if r, err := ParseRecord(want); err != nil || r.String() != want {
		t.Errorf("parsed as %s, %v", r, err)
	}
}

func TestParseRecordRefuses(t *testing.T) {
	for name, raw := range map[string]string{
		"nothing":                                 "",
		"not JSON":                                "Closed",
		"a list":                                  "[]",
		"no state":                                "{}",
		"another state":                           `{"state":"closed ","taint":"k:NoSchedule"}`,
		"closed without a taint":                  `{"state":"Closed"}`,
		"a taint without an effect":               `{"state":"Closed","taint":"k"}`,
		"a taint without a key":                   `{"state":"Closed","taint":":NoSchedule"}`,
		"an unknown effect":                       `{"state":"Closed","taint":"k:NoSleep"}`,
		"a taint of Kubernetes":                   `{"state":"Closed","taint":"node.kubernetes.io/not-ready:NoSchedule"}`,
		"no time":                                 `{"state":"Open","since":"yesterday"}`,
		"a time before the range":                 `{"state":"Open","since":"0001-01-01T00:00:00+01:00"}`,
		"a time after the range":                  `{"state":"Open","since":"9999-12-31T23:59:59-23:00"}`,
		"foughtAt after the range":                `{"state":"Open","foughtAt":"9999-12-31T23:59:59-23:00"}`,
		"another override":                        `{"state":"Open","override":"Ajar","taint":"k:NoSchedule"}`,
		"an override that equals the state":       `{"state":"Open","override":"Open","taint":"k:NoSchedule"}`,
		"a closed override that equals the state": `{"state":"Closed","override":"Closed","taint":"k:NoSchedule"}`,
		"an override without a taint":             `{"state":"Open","override":"Closed"}`,
		"overrideSince after the range":           `{"state":"Open","override":"Closed","taint":"k:NoSchedule","overrideSince":"9999-12-31T23:59:59-23:00"}`,
		"a taint of Kubernetes, overridden":       `{"state":"Open","override":"Closed","taint":"node.kubernetes.io/not-ready:NoSchedule"}`,
		"a reason with lines":                     `{"state":"Open","reason":"x\n  next  kubectl delete node"}`,
		"a taint with lines":                      `{"state":"Open","taint":"a\nNo gate holds node n1.\n"}`,
		"a source with columns":                   `{"state":"Open","source":"crd\tx"}`,
		"fought out of range":                     `{"state":"Open","fought":99999999999999999999}`,
	} {
		if r, err := ParseRecord(raw); err == nil {
			t.Errorf("%s: parsed as %s", name, r)
		}
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add(`{"state":"Closed","reason":"Birth","boot":"a","taint":"k=v:NoSchedule","source":"crd"}`)
	f.Add(`{"state":"Open","since":"9999-12-31T23:59:59-23:00","fought":-1,"digest":"* a  b"}`)
	f.Add(`{"state":"Closed","taint":"node.kubernetes.io/unreachable:NoExecute"}`)
	f.Add("null")
	f.Fuzz(func(t *testing.T, raw string) {
		if r, err := ParseRecord(raw); err == nil {
			again, err := ParseRecord(r.String())
			if err != nil || again.String() != r.String() {
				t.Errorf("%s is written as %s, which is parsed as %s, %v", raw, r, again, err)
			}
		}
		// For any record, decisions settle and do not change a foreign taint.
		for _, gates := range [][]Gate{nil, {aGate("cni")}, {aGate("cni", refused)}} {
			s := aNode(gates...).taint("node.kubernetes.io/not-ready:NoSchedule", cniTaint).raw("cni", raw)
			for range 3 {
				s.run(t)
				s.after(time.Hour).boot(s.now.String())
			}
			if got := coreText(s.facts.Node.Taints[0]); got != "node.kubernetes.io/not-ready:NoSchedule" {
				t.Errorf("%q changed a foreign taint; the first is %s", raw, got)
			}
		}
	})
}
