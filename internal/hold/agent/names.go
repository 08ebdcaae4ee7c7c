// SPDX-License-Identifier: Apache-2.0

package agent

// Names of the API, which are described in api/v1alpha1 and k8s.io/api/core/v1. A test compares
// them: those packages would add a third to the agent's memory.
const (
	groupName = "nodegate.dev"
	version   = "v1alpha1"

	recordAnnotationPrefix = "gate.nodegate.dev/"
	stateClosed            = "Closed"
	stateOpen              = "Open"

	modeDryRun         = "DryRun"
	modePaused         = "Paused"
	recloseNever       = "Never"
	bypassedHold       = "Hold"
	defaultHoldSeconds = 600
	conditionAccepted  = "Accepted"

	shutdownCondition     = "GracefulNodeShutdownInProgress"
	shutdownMessagePrefix = "nodegate-agent: the machine shuts down in boot "
	conditionTrue         = "True"
	conditionFalse        = "False"
	reasonNotFound        = "NotFound"

	effectPreferNoSchedule = "PreferNoSchedule"
	operatorEqual          = "Equal"
	operatorExists         = "Exists"
	restartPolicyAlways    = "Always"
)
