export { compilePolicy, type CompiledPolicy } from "./egress/compile-policy.ts";
export { createEgressHandler, type EgressDecision } from "./egress/create-egress-handler.ts";
export { proxyEnvironment, proxyPort } from "./egress/proxy-environment.ts";
