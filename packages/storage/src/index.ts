export * from "./object-store.ts";
export { assertObjectKey, assertObjectPrefix } from "./object-key.ts";
export { probeConditions } from "./probe-conditions.ts";
