/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of an operator, as small as a test wants them. */
#pragma once

#include "kiln/node/v1/node.pb-c.h"
#include "lib/base.h"

/* One pod "ns/NAME" of uid "uid-NAME" with policy POLICY and one attribute k8s.pod.name; a
 * container "main" of the id that is 32 bytes of CONTAINER (0: none yet), formerly PREVIOUS. */
struct sample_pod {
	Kiln__Node__V1__Pod pod, *list[1];
	Kiln__Node__V1__Attribute attribute, *attributes[1];
	Kiln__Node__V1__Container container, *containers[1];
	char uid[64], name[64];
	uint8_t id[32], previous_id[32];
};

static inline Kiln__Node__V1__Pod **sample_pod(struct sample_pod *s, const char *name,
					       uint64_t policy, uint8_t container, uint8_t previous)
{
	snprintf(s->uid, sizeof(s->uid), "uid-%s", name);
	snprintf(s->name, sizeof(s->name), "%s", name);
	memset(s->id, container, sizeof(s->id));
	memset(s->previous_id, previous, sizeof(s->previous_id));
	s->attribute = (Kiln__Node__V1__Attribute)KILN__NODE__V1__ATTRIBUTE__INIT;
	s->attribute.key = (char *)"k8s.pod.name";
	s->attribute.value = s->name;
	s->attributes[0] = &s->attribute;
	s->container = (Kiln__Node__V1__Container)KILN__NODE__V1__CONTAINER__INIT;
	s->container.name = (char *)"main";
	s->container.id.data = s->id;
	s->container.id.len = container ? 32 : 0;
	s->container.previous_id.data = s->previous_id;
	s->container.previous_id.len = previous ? 32 : 0;
	s->containers[0] = &s->container;
	s->pod = (Kiln__Node__V1__Pod)KILN__NODE__V1__POD__INIT;
	s->pod.uid = s->uid;
	s->pod.namespace_ = (char *)"ns";
	s->pod.name = s->name;
	s->pod.policy = policy;
	s->pod.n_attributes = 1;
	s->pod.attributes = s->attributes;
	s->pod.n_containers = 1;
	s->pod.containers = s->containers;
	s->list[0] = &s->pod;
	return s->list;
}

struct sample_policy {
	Kiln__Node__V1__Policy policy, *list[1];
};

static inline Kiln__Node__V1__Policy **sample_policy(struct sample_policy *s, uint64_t id,
						     uint32_t hz)
{
	s->policy = (Kiln__Node__V1__Policy)KILN__NODE__V1__POLICY__INIT;
	s->policy.id = id;
	s->policy.enabled = hz > 0;
	s->policy.hz = hz;
	s->list[0] = &s->policy;
	return s->list;
}
