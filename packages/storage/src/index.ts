export * from "./object-store.ts";
export { assertObjectKey, assertObjectPrefix } from "./object-key.ts";
export { probeConditions } from "./probe-conditions.ts";
export { openStore } from "./open-store.ts";
export { StoreConfig } from "./store-config.ts";
export { Gate } from "./bucket/gate.ts";
export { inParallel } from "./bucket/in-parallel.ts";
export { FileObjectStore } from "./file/file-object-store.ts";
export { systemClock, type Clock } from "./lease/clock.ts";
export { FencedObject, type FencedContent, type FencedObjectOptions } from "./lease/fenced-object.ts";
export type { HandoverProgress } from "./lease/acquisition.ts";
export type { LeaseParty } from "./lease/lease-document.ts";
export type { LeaseLoss } from "./lease/lease-lost.ts";
export type { LeaseTiming } from "./lease/lease-timing.ts";
export {
  leaseTransitions,
  type Fence,
  type Lease,
  type LeaseCallbacks,
  type LeaseOrigin,
  type LeaseState,
} from "./lease/lease.ts";
export {
  Leases,
  type AcquireOptions,
  type HandoverOptions,
  type LeasesOptions,
  type LeaseView,
} from "./lease/leases.ts";
export { chooseExpired, type DatedManifest, type Manifest, type RetentionPolicy } from "./collection/choose-expired.ts";
export { collectGarbage, type CollectOptions } from "./collection/collect-garbage.ts";
export { renewManifest, retireManifest } from "./collection/retired-manifests.ts";
