// SPDX-License-Identifier: Apache-2.0

package gates

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// DefinitionName is the name of NodeGate's CustomResourceDefinition.
const DefinitionName = "nodegates." + v1alpha1.GroupName

// DefinitionResource is the resource of CustomResourceDefinitions.
var DefinitionResource = schema.GroupVersionResource{
	Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
}

// GatesName is the name of the feed of NodeGates.
const GatesName = "nodegates"
