import { randomBytes } from "node:crypto";
import { LayerId, MemoryPart, SandboxId, type LayerPart } from "@atoll/protocol";
import type { Checksum } from "@atoll/storage";

/** How the bytes of a part are stored. */
export const partEncodings = ["plain", "br"] as const;
export type PartEncoding = (typeof partEncodings)[number];

/** What a part is in its checkpoint. It decides where the part is stored. */
export type PartRole =
  | { kind: "memory"; sandboxId: SandboxId; n: number; name: string }
  | { kind: "owner"; sandboxId: SandboxId; n: number }
  | { kind: "layer"; layer: LayerPart };

export const checkpointsPrefix = "checkpoints/";
export const layersPrefix = "layers/";
export const retiredPrefix = "collection/checkpoints/retired/";
export const condemnedKey = "collection/checkpoints/condemned.json";

const manifestKeyForm = /^checkpoints\/([a-z0-9]{20})\/([1-9]\d{0,8})\/manifest\.json$/;
const checkpointPartForm = String.raw`checkpoints\/[a-z0-9]{20}\/[1-9]\d{0,8}\/(?:memory\/(?<file>[^/]+)|owner)`;
const partKeyForm = new RegExp(String.raw`^(?:${checkpointPartForm}|layers\/(?<layer>[^/]+))\/(?<name>[^/]+)$`);
const partNameForm = /^([0-9a-f]{64})\.([a-z]+)\.([0-9a-f]{64})\.[0-9a-f]{8}$/;

export const sandboxPrefix = (id: SandboxId): string => `${checkpointsPrefix}${id}/`;
export const checkpointPrefix = (id: SandboxId, n: number): string => `${sandboxPrefix(id)}${n}/`;
export const manifestKey = (id: SandboxId, n: number): string => `${checkpointPrefix(id, n)}manifest.json`;

/** Returns the checkpoint of a manifest, or undefined if the key is not one of a manifest. */
export function parseManifestKey(key: string): { sandboxId: SandboxId; n: number } | undefined {
  const [, id, n] = manifestKeyForm.exec(key) ?? [];
  return id === undefined ? undefined : { sandboxId: SandboxId.parse(id), n: Number(n) };
}

/** Returns the prefix of everything that may be stored of a part. */
export function partPrefix(role: PartRole): string {
  switch (role.kind) {
    case "memory":
      return `${checkpointPrefix(role.sandboxId, role.n)}memory/${role.name}/`;
    case "owner":
      return `${checkpointPrefix(role.sandboxId, role.n)}owner/`;
    case "layer":
      return `${layersPrefix}${role.layer.id}/`;
  }
}

/**
 * Returns an unused key that describes its content. Two servers that store the same part use different keys, and a key
 * that a collector has condemned never gets new content.
 */
export function newPartKey(role: PartRole, original: Checksum, encoding: PartEncoding, sha256: string): string {
  return `${partPrefix(role)}${original.sha256}.${encoding}.${sha256}.${randomBytes(4).toString("hex")}`;
}

/** Returns what a key says about its content, or undefined if it is not a key of this part. */
export function parsePartKey(
  role: PartRole,
  original: Checksum,
  key: string,
): { encoding: PartEncoding; sha256: string } | undefined {
  const prefix = partPrefix(role);
  if (!key.startsWith(prefix)) return undefined;
  const [, originalSha256, named, sha256] = partNameForm.exec(key.slice(prefix.length)) ?? [];
  const encoding = partEncodings.find((known) => known === named);
  if (originalSha256 !== original.sha256 || encoding === undefined || sha256 === undefined) return undefined;
  return { encoding, sha256 };
}

/** Reports whether a key has the form of `newPartKey`, for any checkpoint. */
export function isPartKey(key: string): boolean {
  const { file, layer, name = "" } = partKeyForm.exec(key)?.groups ?? {};
  if (file !== undefined && !MemoryPart.shape.name.safeParse(file).success) return false;
  if (layer !== undefined && !LayerId.safeParse(layer).success) return false;
  const encoding = partNameForm.exec(name)?.[2];
  return partEncodings.some((known) => known === encoding);
}
