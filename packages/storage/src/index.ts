export * from "./object-store.ts";
export { assertObjectKey } from "./object-key.ts";
