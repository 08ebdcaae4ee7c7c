// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/nodegate/nodegate/internal/descheduler"
	"github.com/nodegate/nodegate/internal/kube/read"
)

// deschedulerConfigMaps returns the ConfigMaps that deschedulers mount, without duplicates. A
// Deployment without replicas and a suspended CronJob start no descheduler.
// All other ConfigMaps remain unread: users may not read all of them, and they are large.
func deschedulerConfigMaps(deployments []appsv1.Deployment, cronJobs []batchv1.CronJob) (names []types.NamespacedName) {
	add := func(namespace string, pod *corev1.PodSpec) {
		for _, name := range descheduler.ConfigMaps(pod) {
			if n := (types.NamespacedName{Namespace: namespace, Name: name}); !slices.Contains(names, n) {
				names = append(names, n)
			}
		}
	}
	for i := range deployments {
		if d := &deployments[i]; ptr.Deref(d.Spec.Replicas, 1) > 0 {
			add(d.Namespace, &d.Spec.Template.Spec)
		}
	}
	for i := range cronJobs {
		if c := &cronJobs[i]; !ptr.Deref(c.Spec.Suspend, false) {
			add(c.Namespace, &c.Spec.JobTemplate.Spec.Template.Spec)
		}
	}
	return names
}

// deschedulerPolicies returns the policies in ConfigMaps. With an error, it returns those that
// it could read.
func deschedulerPolicies(ctx context.Context, reader *read.Reader, names []types.NamespacedName) (all []descheduler.Policy, _ error) {
	var errs []error
	for _, name := range names {
		data, err := reader.ConfigMap(ctx, name.Namespace, name.Name)
		if err != nil {
			errs = append(errs, err)
		}
		for _, key := range slices.Sorted(maps.Keys(data)) {
			switch p, err := descheduler.Parse(data[key]); {
			case err != nil:
				errs = append(errs, fmt.Errorf("configmap %s, key %s: %w", name, key, err))
			case p != nil:
				p.ConfigMap = name.String()
				all = append(all, *p)
			}
		}
	}
	return all, errors.Join(errs...)
}

// deschedulersOf returns the policies of all deschedulers in the cluster. With an error, it
// returns those that it could read.
func deschedulersOf(ctx context.Context, reader *read.Reader) ([]descheduler.Policy, error) {
	deployments, deploymentsErr := reader.Deployments(ctx)
	cronJobs, cronJobsErr := reader.CronJobs(ctx)
	policies, err := deschedulerPolicies(ctx, reader, deschedulerConfigMaps(deployments, cronJobs))
	return policies, errors.Join(deploymentsErr, cronJobsErr, err)
}
